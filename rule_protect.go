package orbit

import (
	"fmt"
	"time"
)

// A placement may be protected for a while: no voluntary disruption ends it before.

// check implements [Commitment].
func (c Protect) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	if (c.For == 0) == (c.Since == 0) || c.For < 0 || c.For > v.limits.longestProtection() {
		v.fail("protection of capsule %q for %v, or ended since revision %d; it needs exactly one, and this ledger protects for %v at most",
			c.Capsule, c.For, c.Since, v.limits.longestProtection())
	}
	return nil
}

// execute implements [Commitment].
func (c Protect) execute(t *tx) (NodeID, error) {
	return "", t.protect(&c)
}

func (c Protect) subject() CapsuleID { return c.Capsule }

func (c Protect) effect() effect {
	return effect{victims: c.For == 0}
}

// offence implements [planCheck.offence].
func (c Protect) offence(t *planCheck) (CapsuleID, string) {
	if c.For == 0 {
		return c.Capsule, fmt.Sprintf("ends the protection of capsule %q, which engines do", c.Capsule)
	}
	return c.Capsule, t.foreign(c.Capsule, "protects")
}

// ending returns when the protection ends, counted from now.
func (c Protect) ending(made Revision, now, _ time.Time) (end roomEnd, ok bool) {
	return roomEnd{now.Add(c.For), Protect{Capsule: c.Capsule, Since: made}}, c.For > 0
}

// lives reports whether the protection that c ends still exists.
func (c Protect) lives(s *State, _ time.Time) bool {
	p, _ := s.protected.Get(protection{capsule: c.Capsule})
	return p.since == c.Since
}

// beside refuses a protection without a placement: there would be nothing to protect.
func (c Protect) beside(v *validator, all []Commitment) {
	if c.For != 0 {
		v.besidePlace(all, c.Capsule)
	}
}

// protect notes that the placement of a capsule by this proposal is protected, or ends the protection of an older one.
func (t *tx) protect(c *Protect) error {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return err
	}
	switch {
	case c.For > 0 && e.now.Spec.Backfills:
		return t.refuse(Rejection{Capsule: c.Capsule, Node: e.now.Node}, e.newestSpec(), "capsule %q backfills, so it cannot be protected", c.Capsule)
	case c.For > 0:
		e.protects = c.For
		return nil
	}
	p, _ := t.s.protected.Get(protection{capsule: c.Capsule})
	if p.since != c.Since || !e.now.Placed() || !t.madeAt(e.now.PlacedAt, c.Since) || e.unprotects {
		return t.refuse(Rejection{Capsule: c.Capsule, Node: e.now.Node}, e.newest(),
			"capsule %q has no protected placement made at revision %d", c.Capsule, c.Since)
	}
	e.unprotects, e.now.Changed, e.dirty = true, t.rev, true
	return nil
}

// judgeProtection judges that no wish takes a capsule off its node that was protected before the proposal.
func (t *tx) judgeProtection() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.wished || e.was == nil || t.s.protected.Len() == 0 {
			continue
		}
		if r := t.s.shielded(e.was); r != nil {
			t.at = -1
			return t.refuse(*r, e.newest(), "%s", r.Reason)
		}
	}
	return nil
}

// besidePlace refuses the protection of a capsule that the proposal does not place, and a second protection of the same
// capsule.
func (v *validator) besidePlace(do []Commitment, id CapsuleID) {
	if v.placed == nil {
		v.placed = map[CapsuleID]bool{}
		for _, c := range do {
			if place, ok := c.(Place); ok {
				v.placed[place.Capsule] = true
			}
		}
	}
	if !v.placed[id] {
		v.fail("capsule %q is protected twice, or not placed by the proposal that protects it", id)
	}
	delete(v.placed, id)
}

// publishProtections removes the protections of placements that have ended, and adds those of new placements.
func (s *State) publishProtections(t *tx) {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if s.protected.Len() > 0 && e.dirty && (e.unprotects || !e.now.Placed() || e.arrives) {
			s.protected.Delete(protection{capsule: e.now.ID})
		}
		if e.protects > 0 && e.now.Placed() {
			s.protected.ReplaceOrInsert(protection{e.now.ID, e.now.PlacedAt, e.protects})
		}
	}
}

// protections checks that each protection names an existing placement.
func (v *verifier) protections() {
	v.s.protected.Ascend(func(p protection) bool {
		if c := v.s.Capsule(p.capsule); c == nil || !c.Placed() || c.PlacedAt != p.since || p.lasts <= 0 {
			v.fail("capsule %q is protected for %v since revision %d, where it has no placement of then", p.capsule, p.lasts, p.since)
		}
		return true
	})
}
