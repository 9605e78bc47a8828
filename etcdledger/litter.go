package etcdledger

import "github.com/orbitsched/orbit"

// litter is what a sweep may delete: records of what is not in the state any more. It holds candidates; whoever
// sweeps asks the state once more.
type litter struct {
	refs map[ref]struct{}
	// Released capsules, in the order in which the state drops them, and the gang of each.
	released []departed
	// Ids of proposals that placed nothing, in the order in which the state forgets them.
	ids []forgotten
}

// departed is a capsule that was released for good at a revision. The id may be used again.
type departed struct {
	capsule orbit.CapsuleID
	gang    orbit.GangID
	at      orbit.Revision
}

// forgotten is the id of a proposal that was committed at a revision, and will be forgotten.
type forgotten struct {
	id orbit.ProposalID
	at orbit.Revision
}

// add notes a candidate.
func (l *litter) add(k kind, id string) {
	if l.refs == nil {
		l.refs = map[ref]struct{}{}
	}
	l.refs[ref{k, id}] = struct{}{}
}

// swept forgets what has been deleted.
func (l *litter) swept(refs []ref) {
	for _, r := range refs {
		delete(l.refs, r)
	}
}

// note looks at what was committed: now is the state after it and was the one before.
func (l *litter) note(changes []orbit.Change, now, was *orbit.State) {
	places := false
	for i, c := range changes {
		l.change(c, now, was)
		_, place := c.Do.(orbit.Place)
		places = places || place
		if i+1 < len(changes) && changes[i+1].ID == c.ID && changes[i+1].Revision == c.Revision {
			continue
		}
		if !places && !c.ID.IsZero() {
			l.ids = append(l.ids, forgotten{c.ID, c.Revision})
		}
		places = false
	}
	l.drop(now)
}

// change looks at one commitment.
func (l *litter) change(change orbit.Change, now, was *orbit.State) {
	switch c := change.Do.(type) {
	case orbit.RemoveNode:
		l.add(kindUse, string(c.Node))
	case orbit.Mark:
		if c.Value == "" {
			l.add(kindMark, c.Key)
		}
	case orbit.Release:
		if c.Hold != "" {
			l.add(kindHold, string(c.Hold))
		} else if c.Final {
			l.released = append(l.released, departed{c.Capsule, gangOf(c.Capsule, now, was), change.Revision})
		}
	}
}

// gangOf returns the gang of a capsule that one of the states has a record of.
func gangOf(id orbit.CapsuleID, states ...*orbit.State) orbit.GangID {
	for _, s := range states {
		if c := s.Capsule(id); c != nil {
			return c.Gang
		}
	}
	return ""
}

// drop moves to the candidates what the state has dropped.
func (l *litter) drop(now *orbit.State) {
	for len(l.released) > 0 {
		d := l.released[0]
		if c := now.Capsule(d.capsule); c != nil && c.Released() && c.Changed == d.at {
			break
		}
		l.add(kindCapsule, string(d.capsule))
		if d.gang != "" {
			l.add(kindGang, string(d.gang))
		}
		l.released = l.released[1:]
	}
	for len(l.ids) > 0 && now.Committed(orbit.Proposal{ID: l.ids[0].id}) != l.ids[0].at {
		l.add(kindProposal, l.ids[0].id.String())
		l.ids = l.ids[1:]
	}
}

// isLitter reports whether there is nothing in the state that a record speaks of.
func isLitter(s *orbit.State, r ref) bool {
	switch r.kind {
	case kindNode, kindUse:
		return s.Node(orbit.NodeID(r.id)) == nil
	case kindCapsule:
		return s.Capsule(orbit.CapsuleID(r.id)) == nil
	case kindGang:
		return s.Gang(orbit.GangID(r.id)) == nil
	case kindHold:
		_, lives := s.Hold(orbit.HoldID(r.id))
		return !lives
	case kindMark:
		_, at := s.Mark(r.id)
		return at == 0
	case kindProposal:
		var id orbit.ProposalID
		return id.UnmarshalText([]byte(r.id)) != nil || s.Committed(orbit.Proposal{ID: id}) == 0
	}
	return false
}
