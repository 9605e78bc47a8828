package orbit

// This file checks the form of each commitment, without a look at any state.

// check implements [Commitment].
func (c PutNode) check(v *validator) Commitment {
	n := &c.Node
	v.id("node id", string(n.ID))
	v.failAll(n.faults())
	v.text("device model", n.Devices.Model, v.limits.IDBytes)
	v.carried("node", 0, n.Labels)
	for _, t := range n.Taints {
		v.text("taint", t.String(), v.limits.SpecBytes)
	}
	for _, x := range n.Extras {
		v.text("extra", x.Name, v.limits.IDBytes)
	}
	return nil
}

// check implements [Commitment].
func (c RemoveNode) check(v *validator) Commitment {
	v.ref("node id", string(c.Node))
	return nil
}

// check implements [Commitment]. A Submit is kept with the shared copy of its spec, and so are the roles of a gang.
func (c Submit) check(v *validator) Commitment {
	v.text("owner", c.Owner, v.limits.IDBytes)
	v.carried("submission", c.At, c.Labels)
	if c.Gang != nil {
		if len(c.IDs) > 0 || c.Spec != nil {
			v.fail("submit names a gang and also capsules; it needs exactly one of them")
			return nil // no more faults: what the gang lacks may be in the fields that do not belong to it
		}
		v.gang(c.Gang)
		return nil
	}
	v.capsuleIDs(c.IDs)
	if c.Spec == nil && len(c.IDs) > 0 {
		v.fail("submit of %d capsules needs a spec", len(c.IDs))
		return nil
	}
	if c.Spec == nil {
		c.Spec = &Spec{} // so that readers of the history need not check
	}
	c.Spec = v.spec(c.Spec)
	return c
}

// check implements [Commitment].
func (c Place) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	v.ref("node id", string(c.Node))
	if c.Note != "" {
		v.text("note", c.Note, v.limits.ValueBytes)
	}
	v.carried("placement", c.At, nil)
	return nil
}

// check implements [Commitment]. A release names exactly one capsule or hold, and its flags go together.
func (c Release) check(v *validator) Commitment {
	if (c.Capsule == "") == (c.Hold == "") {
		v.fail("release names capsule %q and hold %q; it needs exactly one", c.Capsule, c.Hold)
	}
	if c.Hold != "" && (c.From != "" || c.Final || c.Stopped) {
		v.fail("release of a hold takes neither From nor Final nor Stopped")
	}
	if c.Final && c.Stopped {
		v.fail("release of capsule %q is final, which says all; it takes no Stopped", c.Capsule)
	}
	v.carried("release", c.At, nil)
	if c.At != 0 && (c.Hold != "" || c.Final) {
		v.fail("release of a hold, or for good, takes no At")
	}
	v.text("capsule id", string(c.Capsule), v.limits.IDBytes)
	v.text("hold id", string(c.Hold), v.limits.IDBytes)
	v.text("node id", string(c.From), v.limits.IDBytes)
	return nil
}

// check implements [Commitment].
func (c Evict) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	v.ref("node id", string(c.From))
	v.text("capsule id", string(c.For), v.limits.IDBytes)
	v.text("gang id", string(c.ForGang), v.limits.IDBytes)
	if c.For != "" && c.ForGang != "" {
		v.fail("eviction of capsule %q is for capsule %q and for gang %q; it is for one of them, or a move", c.Capsule, c.For, c.ForGang)
	}
	if c.Since == 0 {
		v.fail("eviction of capsule %q does not say since when it is placed; take PlacedAt from its record", c.Capsule)
	}
	return nil
}

// check implements [Commitment].
func (c Confirm) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	if btoi(c.Begun)+btoi(c.Ready)+btoi(c.NotReady)+btoi(c.Stopped) != 1 || c.Since == 0 {
		v.fail("confirmation of capsule %q says Begun %v, Ready %v, NotReady %v, Stopped %v, since revision %d; it needs exactly one, and the revision of the placement",
			c.Capsule, c.Begun, c.Ready, c.NotReady, c.Stopped, c.Since)
	}
	return nil
}

// check implements [Commitment]. An adoption is kept with the shared copy of its spec.
func (c Adopt) check(v *validator) Commitment {
	v.id("capsule id", string(c.Capsule))
	v.ref("node id", string(c.Node))
	v.text("note", c.Note, v.limits.ValueBytes)
	v.carried("adoption", c.At, nil)
	if c.Spec != nil {
		c.Spec = v.spec(c.Spec)
	}
	return c
}

// check implements [Commitment]. A resize is kept with the shared copy of its spec.
func (c Resize) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	if c.Spec == nil {
		v.fail("resize of capsule %q needs a spec", c.Capsule)
		return nil
	}
	c.Spec = v.spec(c.Spec)
	return c
}

// check implements [Commitment]. The end of a hold is kept in the one form that a dump can hold: UTC, without a monotonic part.
func (c Hold) check(v *validator) Commitment {
	v.id("hold id", string(c.ID))
	v.id("node id", string(c.Node))
	v.text("hold for", c.For, v.limits.IDBytes)
	v.room("hold", &c.Room, c.Devices, c.Milli)
	c.Ends = v.ends("hold", c.Ends)
	return c
}

// check implements [Commitment]. The Ends of a nomination is kept in the same form as that of a hold.
func (c Nominate) check(v *validator) Commitment {
	if (c.Capsule == "") == (c.Gang == "") {
		v.fail("nomination names capsule %q and gang %q; it needs exactly one", c.Capsule, c.Gang)
	}
	v.text("capsule id", string(c.Capsule), v.limits.IDBytes)
	v.text("gang id", string(c.Gang), v.limits.IDBytes)
	if len(c.Parts) == 0 {
		if c.Aged != 0 || !c.Ends.IsZero() || c.Lends != 0 {
			v.fail("nomination of no room takes no Aged, Ends or Lends")
		}
		return nil
	}
	if c.Lends < 0 {
		v.fail("nomination lends its room for %v; it must not be negative, and 0 lends it to nobody", c.Lends)
	}
	if c.Aged < 0 || int64(c.Aged) > int64(v.limits.NominationAging) {
		v.fail("nomination is aged by %d; this ledger takes 0 to %d", c.Aged, v.limits.NominationAging)
	}
	if len(c.Parts) > v.limits.Commitments {
		v.fail("nomination of %d rooms; this ledger takes %d", len(c.Parts), v.limits.Commitments)
		return nil
	}
	seen := make(map[NodeID]bool, len(c.Parts))
	for i := range c.Parts {
		r := &c.Parts[i]
		v.id("node id", string(r.Node))
		v.room("nomination", &r.Room, r.Devices, r.Milli)
		if seen[r.Node] {
			v.fail("nomination names node %q twice", r.Node)
		}
		seen[r.Node] = true
	}
	c.Ends = v.ends("nomination", c.Ends)
	return c
}

// check implements [Commitment].
func (c Assign) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	v.text("owner", c.From, v.limits.IDBytes)
	v.text("owner", c.Owner, v.limits.IDBytes)
	return nil
}

// check implements [Commitment].
func (c Mark) check(v *validator) Commitment {
	v.id("mark key", c.Key)
	v.text("mark value", c.Value, v.limits.ValueBytes)
	return nil
}

// check implements [Commitment].
func (c PutBudget) check(v *validator) Commitment {
	v.id("budget id", string(c.Budget.ID))
	v.text("group", c.Budget.Group, v.limits.IDBytes)
	v.text("module", c.Budget.Module, v.limits.IDBytes)
	v.failAll(c.Budget.faults())
	return nil
}

// check implements [Commitment].
func (c RemoveBudget) check(v *validator) Commitment {
	v.ref("budget id", string(c.Budget))
	return nil
}

// check implements [Commitment].
func (c Protect) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	if (c.For == 0) == (c.Since == 0) || c.For < 0 || c.For > v.limits.longestProtection() {
		v.fail("protection of capsule %q for %v, or ended since revision %d; it needs exactly one, and this ledger protects for %v at most",
			c.Capsule, c.For, c.Since, v.limits.longestProtection())
	}
	return nil
}
