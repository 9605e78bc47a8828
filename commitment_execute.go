package orbit

// This file has what each commitment does to a write-set, and which capsule it is about.

// execute implements [Commitment].
func (c PutNode) execute(t *tx) (NodeID, error) {
	return c.Node.ID, t.putNode(&c.Node)
}

// execute implements [Commitment].
func (c RemoveNode) execute(t *tx) (NodeID, error) {
	return c.Node, t.removeNode(c.Node)
}

// execute implements [Commitment].
func (c Submit) execute(t *tx) (NodeID, error) {
	if c.Gang != nil {
		return "", t.submitGang(&c)
	}
	return "", t.submit(c.IDs, Capsule{Spec: c.Spec, common: t.share(common{owner: c.Owner, labels: c.Labels, time: c.At})})
}

// execute implements [Commitment].
func (c Place) execute(t *tx) (NodeID, error) {
	return t.place(&c)
}

// execute implements [Commitment].
func (c Release) execute(t *tx) (NodeID, error) {
	if c.Hold != "" {
		return t.endHold(c.Hold)
	}
	return t.release(&c)
}

// execute implements [Commitment].
func (c Evict) execute(t *tx) (NodeID, error) {
	return t.evict(&c)
}

// execute implements [Commitment].
func (c Confirm) execute(t *tx) (NodeID, error) {
	return t.confirm(&c)
}

// execute implements [Commitment].
func (c Adopt) execute(t *tx) (NodeID, error) {
	return t.adopt(&c)
}

// execute implements [Commitment].
func (c Resize) execute(t *tx) (NodeID, error) {
	return t.resize(&c)
}

// execute implements [Commitment].
func (c Hold) execute(t *tx) (NodeID, error) {
	return c.Node, t.startHold(&c)
}

// execute implements [Commitment].
func (c Nominate) execute(t *tx) (NodeID, error) {
	return "", t.nominate(&c)
}

// execute implements [Commitment].
func (c Assign) execute(t *tx) (NodeID, error) {
	return "", t.assign(&c)
}

// execute implements [Commitment].
func (c Mark) execute(t *tx) (NodeID, error) {
	t.setMark(&c)
	return "", nil
}

// execute implements [Commitment].
func (c PutBudget) execute(t *tx) (NodeID, error) {
	t.putBudget(&c.Budget)
	return "", nil
}

// execute implements [Commitment].
func (c RemoveBudget) execute(t *tx) (NodeID, error) {
	return "", t.removeBudget(c.Budget)
}

// execute implements [Commitment].
func (c Protect) execute(t *tx) (NodeID, error) {
	return "", t.protect(&c)
}

func (PutNode) subject() CapsuleID      { return "" }
func (RemoveNode) subject() CapsuleID   { return "" }
func (Submit) subject() CapsuleID       { return "" }
func (c Place) subject() CapsuleID      { return c.Capsule }
func (c Release) subject() CapsuleID    { return c.Capsule }
func (c Evict) subject() CapsuleID      { return c.Capsule }
func (c Confirm) subject() CapsuleID    { return c.Capsule }
func (c Adopt) subject() CapsuleID      { return c.Capsule }
func (c Resize) subject() CapsuleID     { return c.Capsule }
func (Hold) subject() CapsuleID         { return "" }
func (c Nominate) subject() CapsuleID   { return c.Capsule }
func (c Assign) subject() CapsuleID     { return c.Capsule }
func (Mark) subject() CapsuleID         { return "" }
func (PutBudget) subject() CapsuleID    { return "" }
func (RemoveBudget) subject() CapsuleID { return "" }
func (c Protect) subject() CapsuleID    { return c.Capsule }
