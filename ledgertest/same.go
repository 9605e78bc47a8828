package ledgertest

import (
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/harness"
)

// sameVerdict returns an error if a rejection differs from that of State.Check.
func sameVerdict(got, want error) error {
	var r, w *orbit.Rejection
	if !errors.As(got, &r) {
		return fmt.Errorf("without a receipt: %w", got)
	}
	if !errors.As(want, &w) {
		return fmt.Errorf("the receipt says %w; at revision %d State.Check says that it holds, or has been committed", got, r.At)
	}
	a := fmt.Sprintf("%v, commitment %d, bet %v, capsule %q, node %q, wants %d of %q, %d free", r.Kind, r.Do, r.Bet, r.Capsule, r.Node, r.Want, r.Dimension, r.Free)
	b := fmt.Sprintf("%v, commitment %d, bet %v, capsule %q, node %q, wants %d of %q, %d free", w.Kind, w.Do, w.Bet, w.Capsule, w.Node, w.Want, w.Dimension, w.Free)
	if a != b {
		return fmt.Errorf("the receipt says %s; at revision %d State.Check says %s", a, r.At, b)
	}
	return nil
}

// sameChanges returns an error if the changes of a commit differ from the proposal. Nodes, specs and times are compared
// by content, because a ledger may keep them in another form.
func sameChanges(changes []orbit.Change, p orbit.Proposal, rev orbit.Revision) error {
	if len(changes) != len(p.Do) {
		return fmt.Errorf("%d changes of %d commitments", len(changes), len(p.Do))
	}
	for i, c := range changes {
		if c.Revision != rev || c.ID != p.ID {
			return fmt.Errorf("change %d is of %s at %d, not of %s at %d", i, c.ID, c.Revision, p.ID, rev)
		}
		if got, want := canonicalText(c.Do), canonicalText(p.Do[i]); got != want {
			return fmt.Errorf("change %d is %s; it was proposed as %s", i, got, want)
		}
	}
	return nil
}

// canonicalText returns a text that is the same for commitments with the same content.
func canonicalText(c orbit.Commitment) string {
	switch v := c.(type) {
	case orbit.Hold:
		v.Ends = v.Ends.UTC().Round(0)
		c = v
	case orbit.Nominate:
		v.Ends = v.Ends.UTC().Round(0)
		c = v
	case orbit.PutNode:
		if len(v.Node.Labels) == 0 {
			v.Node.Labels = nil
		}
		c = v
	case orbit.Respec:
		v.Spec = canonicalSpec(v.Spec)
		c = v
	case orbit.Submit:
		v.Spec = canonicalSpec(v.Spec)
		if v.Gang != nil {
			g := *v.Gang
			g.Roles = slices.Clone(g.Roles)
			for i := range g.Roles {
				g.Roles[i].Spec = canonicalSpec(g.Roles[i].Spec)
			}
			v.Gang = &g
		}
		c = v
	}
	return strings.TrimPrefix(fmt.Sprintf("%T", c), "orbit.") + harness.Text(c)
}

// canonicalSpec returns a copy of a spec with its sets sorted.
func canonicalSpec(s *orbit.Spec) *orbit.Spec {
	if s == nil {
		return nil
	}
	set := func(words []string) []string {
		words = slices.Clone(words)
		slices.Sort(words)
		return slices.Compact(words)
	}
	c := *s
	c.Devices.Models, c.Spread.Names, c.Start.Volumes = set(s.Devices.Models), set(s.Spread.Names), set(s.Start.Volumes)
	canonical := func(p *orbit.Predicate) {
		p.Values, p.Terms = set(p.Values), slices.Clone(p.Terms)
		for i := range p.Terms {
			p.Terms[i] = slices.Clone(p.Terms[i])
			for k := range p.Terms[i] {
				p.Terms[i][k].Values = set(p.Terms[i][k].Values)
			}
		}
	}
	c.Require = append([]orbit.Predicate{}, s.Require...)
	for i := range c.Require {
		canonical(&c.Require[i])
	}
	c.Prefer = append([]orbit.Preference{}, s.Prefer...)
	for i := range c.Prefer {
		canonical(&c.Prefer[i].Predicate)
	}
	return &c
}
