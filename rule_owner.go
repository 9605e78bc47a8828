package orbit

import "strconv"

// A capsule is handed from one owner to another, within its pin.

// check implements [Commitment].
func (c Assign) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	v.text("owner", c.From, v.limits.IDBytes)
	v.text("owner", c.Owner, v.limits.IDBytes)
	return nil
}

// execute implements [Commitment].
func (c Assign) execute(t *tx) (NodeID, error) {
	return "", t.assign(&c)
}

func (c Assign) subject() CapsuleID { return c.Capsule }

func (c Assign) effect() effect {
	return effect{waits: c.Capsule}
}

// offence implements [planCheck.offence].
func (c Assign) offence(t *planCheck) (CapsuleID, string) {
	return c.Capsule, t.foreign(c.Capsule, "assigns")
}

// assign hands a capsule over to another owner. It is refused if the present owner is not c.From, or if a pin names an owner
// other than c.Owner and the proposal does not bet on the pin. To take the owner away is always allowed.
func (t *tx) assign(c *Assign) error {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return err
	}
	if e.now.released {
		return t.refuseEnded(e)
	}
	if t.breaks(e.now.Owner() != c.From) {
		return t.refuse(Rejection{Capsule: c.Capsule}, e.newest(), "capsule %q is owned by %s, not by %s", c.Capsule, who(e.now.Owner()), who(c.From))
	}
	if err := t.unpinned(e, c); err != nil {
		return err
	}
	anew := *e.now.inCommon()
	anew.owner = c.Owner
	e.now.common, e.now.Changed, e.dirty = t.share(anew), t.rev, true
	return nil
}

// unpinned refuses to assign a capsule past its pin, or past that of its gang, if the proposal has no bet on the pin.
func (t *tx) unpinned(e *txCapsule, c *Assign) error {
	if c.Owner == "" || t.replays {
		return nil
	}
	key := PinPrefix + string(c.Capsule)
	if gang := e.now.Gang(); gang != "" {
		key = PinGangPrefix + string(gang)
	}
	pin := t.mark(key).now
	if pin.value == "" || pin.value == c.Owner {
		return nil
	}
	for _, bet := range t.p.If {
		if at, ok := bet.(MarkAt); ok && at.Key == key {
			return nil
		}
	}
	newest := pin.changed
	if newest == t.rev { // the proposal has set the mark itself, so to plan again does not help
		newest = 0
	}
	return t.refuse(Rejection{Capsule: c.Capsule}, newest, "capsule %q is pinned to %q by mark %q; to assign it to %q, change the mark, or bet on it with MarkAt",
		c.Capsule, pin.value, key, c.Owner)
}

// who returns the name of an owner for an error text.
func who(owner string) string {
	if owner == "" {
		return "no engine"
	}
	return strconv.Quote(owner)
}
