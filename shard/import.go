package shard

import (
	"context"
	"errors"
	"slices"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/send"
)

// Submission is one Submit, of capsules or a gang, and the user's choice of their scheduler.
type Submission struct {
	// Submit is the commitment that submits the capsules.
	orbit.Submit
	// Schedulers are the schedulers that the user has chosen, as the importer found them in an annotation, a flag or a
	// field. More than one distinct name, including Submit.Owner, is an [ErrContradiction]. Empty, with an empty
	// Submit.Owner: the dispatcher chooses.
	Schedulers []string
}

// Import submits capsules with the user's choice of schedulers: all of them in one proposal, or none. A capsule with a
// chosen scheduler is submitted with that owner and, in the same proposal, pinned to it; the [Dispatcher] respects the
// pin as long as the capsule lives. Use [Pin] for capsules that were submitted without a choice. A proposal whose
// outcome is unknown is sent again until ctx ends.
//
// The error is [ErrContradiction] if a capsule is assigned to two schedulers, or is in the ledger already and pinned to
// another scheduler; [ErrKey] if the id of a pinned capsule or gang is too long for the key of a mark; or the ledger's
// error. After an error nothing has been submitted, except that the outcome is not known after [orbit.ErrUnknown].
func Import(ctx context.Context, ledger orbit.Ledger, submissions ...Submission) (orbit.Revision, error) {
	p, err := importing(submissions, ledger.Limits())
	if err != nil {
		return 0, err
	}
	rev, err := send.Settle(ctx, ledger, p)
	if r := (*orbit.Rejection)(nil); errors.As(err, &r) && r.Capsule != "" {
		if state, failed := ledger.Snapshot(ctx); failed == nil {
			if why := contradicts(state, p.Do, r.Capsule); why != nil {
				err = errors.Join(why, err)
			}
		}
	}
	return rev, err
}

// contradicts returns an error if the commitments pin a capsule of the ledger, or its gang, to another scheduler than
// the one that it is pinned to.
func contradicts(state *orbit.State, do []orbit.Commitment, id orbit.CapsuleID) error {
	c := state.Capsule(id)
	if c == nil || c.Released() {
		return nil
	}
	u := unitOf(c)
	key := u.pinnedMark().key(u.id)
	is, _ := state.Mark(key)
	for _, one := range do {
		if mark, ok := one.(orbit.Mark); ok && mark.Key == key && is != "" && is != mark.Value {
			return contradictionError(u, is, mark.Value)
		}
	}
	return nil
}

// importing returns the proposal that submits all submissions.
func importing(submissions []Submission, limits orbit.Limits) (orbit.Proposal, error) {
	p := orbit.Proposal{ID: orbit.NewProposalID()}
	assigned := map[orbit.CapsuleID]string{}
	var faults []error
	for i := range submissions {
		s := &submissions[i]
		owner, err := s.owner()
		if err == nil {
			err = s.agrees(owner, assigned)
		}
		if err == nil {
			submit := s.Submit
			submit.Owner = owner
			p.Do = append(p.Do, submit)
			p.Do, err = s.pin(p.Do, owner, limits)
		}
		if err != nil {
			faults = append(faults, err)
		}
	}
	return p, errors.Join(faults...)
}

// owner returns the one scheduler that a submission is assigned to, "" if there is none.
func (s *Submission) owner() (string, error) {
	names := slices.DeleteFunc(slices.Concat(s.Schedulers, []string{s.Owner}), func(name string) bool { return name == "" })
	slices.Sort(names)
	switch names = slices.Compact(names); len(names) {
	case 0:
		return "", nil
	case 1:
		return names[0], nil
	}
	u := unit{}
	if s.Gang != nil {
		u = unit{string(s.Gang.ID), true}
	} else if len(s.IDs) > 0 {
		u.id = string(s.IDs[0])
	}
	return "", contradictionError(u, names...)
}

// agrees returns an error if an earlier submission assigned a capsule of this one to another scheduler. If both name
// the same scheduler, the ledger refuses the second use of the id.
func (s *Submission) agrees(owner string, assigned map[orbit.CapsuleID]string) error {
	ids := s.IDs
	for i := 0; s.Gang != nil && i < len(s.Gang.Roles); i++ {
		ids = slices.Concat(ids, s.Gang.Roles[i].Members)
	}
	for _, id := range ids {
		if was, twice := assigned[id]; twice && was != "" && owner != "" && was != owner {
			return contradictionError(unit{id: string(id)}, was, owner)
		} else if !twice || was == "" {
			assigned[id] = owner
		}
	}
	return nil
}

// pin adds the pinned marks of a submission: one for a gang, one for each capsule otherwise.
func (s *Submission) pin(do []orbit.Commitment, owner string, limits orbit.Limits) ([]orbit.Commitment, error) {
	if owner == "" {
		return do, nil
	}
	units := make([]unit, 0, len(s.IDs)+1)
	if s.Gang != nil {
		units = append(units, unit{string(s.Gang.ID), true})
	}
	for _, id := range s.IDs {
		units = append(units, unit{id: string(id)})
	}
	for _, u := range units {
		kind := u.pinnedMark()
		if err := kind.fits(u.id, limits); err != nil {
			return do, err
		}
		do = append(do, orbit.Mark{Key: kind.key(u.id), Value: owner})
	}
	return do, nil
}
