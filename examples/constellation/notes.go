package main

import (
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// notes sums up the numbers that navigators report, by key.
type notes struct {
	sums  map[string]float64
	times map[string]time.Duration
}

func (n *notes) add(note slog.Attr) {
	if n.sums == nil {
		n.sums, n.times = map[string]float64{}, map[string]time.Duration{}
	}
	switch v := note.Value.Resolve(); v.Kind() {
	case slog.KindInt64:
		n.sums[note.Key] += float64(v.Int64())
	case slog.KindUint64:
		n.sums[note.Key] += float64(v.Uint64())
	case slog.KindFloat64:
		n.sums[note.Key] += v.Float64()
	case slog.KindDuration:
		n.times[note.Key] += v.Duration()
	default: // has no sum
	}
}

// String returns the sums, ordered by key.
func (n *notes) String() string {
	words := map[string]string{}
	for key, sum := range n.sums {
		words[key] = strconv.FormatFloat(sum, 'f', -1, 64)
	}
	for key, sum := range n.times {
		words[key] = sum.Round(time.Microsecond).String()
	}
	var out []string
	for _, key := range slices.Sorted(maps.Keys(words)) {
		out = append(out, key+" "+words[key])
	}
	return strings.Join(out, ", ")
}
