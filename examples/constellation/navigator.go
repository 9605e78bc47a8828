package main

import (
	"context"
	"hash/fnv"
	"log/slog"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/nav"
)

// share is a navigator for a share of the modules: those whose hash is its own. It places them all as
// nav.Services does, whatever their class.
type share struct {
	nav.Services
	part, of uint32
	// Nil: it takes no samples.
	sampler *sampler
}

// Claims reports whether the module falls to this share.
func (s *share) Claims(module string, _ orbit.AppClass) bool {
	h := fnv.New32a()
	_, _ = h.Write([]byte(module)) // never fails
	return h.Sum32()%s.of == s.part
}

// sampleKey is the note under which a plan hands on a sample. Late plans are dropped with their notes.
const sampleKey = "sample"

// Plan takes a sample first, if it is time for one.
func (s *share) Plan(ctx context.Context, view *orbit.View, pending []*orbit.Capsule) (orbit.Plan, error) {
	if s.sampler == nil || !s.sampler.due(view) {
		return s.Services.Plan(ctx, view, pending)
	}
	sample := s.sampler.take(ctx, view)
	plan, err := s.Services.Plan(ctx, view, pending)
	plan.Notes = append(plan.Notes, slog.Any(sampleKey, sample))
	return plan, err
}
