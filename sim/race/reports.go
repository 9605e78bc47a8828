package race

import (
	"context"
	"slices"
	"strings"
	"time"

	"github.com/orbitsched/orbit"
)

// reports is the soft plane of a race: what the nodes have said, as far as it has arrived. An older report that comes
// after a newer one is not taken.
type reports struct {
	version uint64
	latest  map[orbit.NodeID]reported
}

type reported struct {
	orbit.Report
	version uint64
}

// put takes a report.
func (b *reports) put(r orbit.Report) {
	if b.latest == nil {
		b.latest = map[orbit.NodeID]reported{}
	}
	if known, ok := b.latest[r.Node]; !ok || r.At.After(known.At) {
		b.version++
		b.latest[r.Node] = reported{r, b.version}
	}
}

// hearing is the soft plane as an engine sees it. It implements [orbit.Telemetry].
type hearing struct{ *actor }

// Reports implements [orbit.Telemetry].
func (h *hearing) Reports(_ context.Context, after uint64) (out []orbit.Report, version uint64, err error) {
	h.stop(stepPass, "ask for reports")
	for _, r := range h.board.latest {
		if r.version > after {
			out = append(out, r.Report)
		}
	}
	slices.SortFunc(out, func(a, b orbit.Report) int { return strings.Compare(string(a.Node), string(b.Node)) })
	return out, h.board.version, nil
}

// Latest implements [orbit.Telemetry].
func (h *hearing) Latest(node orbit.NodeID) (orbit.Report, bool) {
	r, ok := h.board.latest[node]
	return r.Report, ok
}

// StaleAfter implements [orbit.Telemetry]: never.
func (h *hearing) StaleAfter() time.Duration { return 0 }
