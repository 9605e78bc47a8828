package telemetry

import (
	"maps"
	"slices"

	"github.com/orbitsched/orbit"
)

// This file compares and copies reports. A board never writes to a map or slice that a reader may have. Where something
// has changed it makes a new one, and otherwise it keeps sharing the old one.

// repeats reports whether a report differs from the known one in nothing except the heartbeat.
func repeats(known, r *orbit.Report) bool {
	return known.Term == r.Term && known.Usage == r.Usage && known.CPUPercent == r.CPUPercent && known.FreeSlots == r.FreeSlots &&
		maps.Equal(known.Warm, r.Warm) && sameSet(known.Templates, r.Templates) && sameSet(known.Volumes, r.Volumes)
}

// copyOf returns a copy of r that shares no memory with r. It shares the map and slices of the known report that are
// equal to those of r.
func copyOf(r, known *orbit.Report) orbit.Report {
	c := *r
	c.Stale = false
	c.Warm, c.Templates, c.Volumes = known.Warm, known.Templates, known.Volumes
	if !maps.Equal(known.Warm, r.Warm) {
		c.Warm = maps.Clone(r.Warm)
	}
	if !sameSet(known.Templates, r.Templates) {
		c.Templates = sortedSet(r.Templates)
	}
	if !sameSet(known.Volumes, r.Volumes) {
		c.Volumes = sortedSet(r.Volumes)
	}
	return c
}

// sameSet reports whether words, in any order, are the words of the sorted set known. If words are sorted and equal to
// known, it allocates nothing.
func sameSet(known, words []string) bool {
	return slices.Equal(known, words) || slices.Equal(known, sortedSet(words))
}

// sortedSet returns a sorted copy without duplicates.
func sortedSet(words []string) []string {
	words = slices.Clone(words)
	slices.Sort(words)
	return slices.Compact(words)
}
