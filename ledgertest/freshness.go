package ledgertest

import (
	"cmp"
	"errors"
	"slices"
	"sort"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// This file is the part of History.Check that compares answers by the times of their calls.

// answer returns the revision of the state from which a call was answered; 0: the answer names no revision.
func (c *Call) answer() orbit.Revision {
	var r *orbit.Rejection
	switch {
	case errors.As(c.Err, &r):
		return r.At // 0 for an invalid proposal
	case c.Err != nil:
		return 0
	case c.Kind == Changes && len(c.Changes) > 0:
		return c.Changes[len(c.Changes)-1].Revision
	case c.Kind == Changes:
		return 0
	}
	return c.Revision
}

// freshness compares each answer with the newest answer that was complete before its call began.
func (c *checker) freshness() {
	begins, ends := make([]*Call, len(c.Calls)), make([]*Call, len(c.Calls))
	for i := range c.Calls {
		begins[i], ends[i] = &c.Calls[i], &c.Calls[i]
	}
	slices.SortFunc(begins, func(a, b *Call) int { return cmp.Compare(a.Start, b.Start) })
	slices.SortFunc(ends, func(a, b *Call) int { return cmp.Compare(a.End, b.End) })
	var all orbit.Revision
	own := map[int]orbit.Revision{}
	for _, call := range begins {
		for len(ends) > 0 && ends[0].End < call.Start {
			done := ends[0]
			all, own[done.Handle] = max(all, done.answer()), max(own[done.Handle], done.answer())
			ends = ends[1:]
		}
		c.fresh(call, all, own[call.Handle])
	}
}

// fresh judges one answer. All and own are the newest revisions that were answered before the call began: all by any
// handle, own by the same handle.
func (c *checker) fresh(call *Call, all, own orbit.Revision) {
	rev := call.answer()
	switch {
	case call.Kind == Changes && call.Err == nil && len(call.Changes) == 0:
		if own > call.After {
			c.fail("stale: Changes after %d returns nothing; the same handle had answered with %d before", call.After, own)
		}
	case rev == 0:
	case call.Kind == Wait && rev <= call.After:
		c.fail("Wait for a revision after %d returns %d", call.After, rev)
	case call.Kind == Wait || call.Kind == Changes:
		if rev < own {
			c.fail("stale: %s after %d answers with %d; the same handle had answered with %d before", call.Kind, call.After, rev, own)
		}
	case call.Kind == Propose && call.Err == nil:
		if rev <= all && !c.sentBefore(call) {
			c.fail("stale: %s was committed at %d; %d was known before it was sent", harness.Describe(call.Proposal), rev, all)
		}
	case rev < all:
		c.fail("stale: %s answers with revision %d; %d was known before the call began", call.Kind, rev, all)
	}
}

// sentBefore reports whether the proposal had been sent before this call, so that it may have an older revision.
func (c *checker) sentBefore(call *Call) bool {
	return slices.ContainsFunc(c.sent[call.Proposal.ID], func(o *Call) bool { return o.Start < call.Start || o != call && o.Start == call.Start })
}

// reads compares the answers of Changes with the history.
func (c *checker) reads() {
	find := func(after orbit.Revision) int {
		return sort.Search(len(c.Changes), func(i int) bool { return c.Changes[i].Revision > after })
	}
	for i := range c.Calls {
		call := &c.Calls[i]
		if call.Kind != Changes || len(call.Changes) == 0 {
			continue
		}
		last := call.Changes[len(call.Changes)-1].Revision
		if call.After < c.Base.Revision() || c.Final != nil && last > c.Final.Revision() {
			continue // the recorded history does not cover all of these changes
		}
		same := func(a, b orbit.Change) bool {
			return a.Revision == b.Revision && a.Seq == b.Seq && a.ID == b.ID && a.Node == b.Node
		}
		if want := c.Changes[find(call.After):find(last)]; !slices.EqualFunc(want, call.Changes, same) {
			c.fail("Changes after %d returned %d changes up to %d; the history has %d there, or others", call.After, len(call.Changes), last, len(want))
		}
	}
}
