package orbit

// Check reports what [Ledger.Propose] would say to the proposal at this very state: nil if it would be
// committed (or has been), else a [*Rejection]. If it says nil and the ledger is still at this revision,
// the commit succeeds.
func (s *State) Check(p Proposal) error {
	p = p.Clone()
	if err := p.check(&s.limits); err != nil {
		return err
	}
	var t tx
	_, err := t.run(s, s.rev+1, &p)
	return err
}

// Committed returns the revision at which a proposal with the same id has been committed, 0 if none is remembered: the
// capsules that it places know it by [Limits.PlacementIDs], others are remembered within [Limits.ProposalIDs].
func (s *State) Committed(p Proposal) Revision {
	t := tx{s: s, p: p}
	return t.committedBefore()
}

// Apply returns the state after the changes, which must be a ledger's own history from s on: in order, none
// left out. Any ledger builds its mirror with it. The changes are judged by the ledger's rules again; what
// breaks one makes Apply fail and say which.
func (s *State) Apply(changes []Change) (*State, error) {
	next := s.thaw()
	var t tx
	for len(changes) > 0 {
		n := 1
		for n < len(changes) && changes[n].Revision == changes[0].Revision && changes[n].ID == changes[0].ID {
			n++
		}
		if err := next.replay(&t, changes[:n]); err != nil {
			return nil, err
		}
		changes = changes[n:]
	}
	return next, nil
}

// replay applies the changes of one proposal.
func (s *State) replay(t *tx, changes []Change) error {
	first := changes[0]
	if first.Revision < s.rev || (first.Revision == s.rev && first.Seq == 0) {
		return invalidf("change at revision %d.%d does not follow a state at %d", first.Revision, first.Seq, s.rev)
	}
	p := Proposal{ID: first.ID, Do: make([]Commitment, len(changes))}
	for i, c := range changes {
		p.Do[i] = c.Do
	}
	p = p.Clone()
	if err := p.check(&s.limits); err != nil {
		return err
	}
	defer t.reset()
	if done, err := t.run(s, first.Revision, &p); err != nil {
		return err
	} else if done != 0 {
		return invalidf("proposal %s appears at revision %d and again at %d", p.ID, done, first.Revision)
	}
	s.publish(t)
	return nil
}
