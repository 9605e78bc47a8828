package orbit

import (
	"cmp"
	"slices"
	"time"
)

// touchNominated marks the nodes as changed on which a change has nominated room, or has ended a nomination. It reports
// whether parked work may fit where one has ended.
func (v *View) touchNominated(c *Change, old *State) (woken bool) {
	capsule, gang, ok := c.nominee()
	if !ok {
		return false
	}
	if do, is := c.Do.(Nominate); is {
		for i := range do.Parts {
			v.touchClaim(&do.Parts[i])
		}
	}
	if old.nominations.Len() == 0 { // then none has ended
		return false
	}
	if was := old.Capsule(capsule); was != nil {
		gang = cmp.Or(gang, was.Gang)
		woken = v.touchClaims(was.Nomination)
	}
	if was := old.Gang(gang); was != nil {
		woken = v.touchClaims(was.Nomination) || woken
	}
	return woken
}

// versioned is what an answer rests on besides the nodes, as NoFit.RestsOn has it.
type versioned interface{ Version(view *View) uint64 }

// rest is what an answer rests on, and the version that it had then. The zero rest: nothing besides the nodes.
type rest struct {
	on versioned
	at uint64
}

// resting are the parked classes whose answers rest on one thing.
type resting struct {
	spots map[*spot]bool
	// The version at which all answers were given; not if it is mixed.
	at    uint64
	mixed bool
}

func (p *parking) addRest(s *spot) {
	if s.rest.on == nil {
		return
	}
	r := p.rests[s.rest.on]
	if r == nil {
		r = &resting{spots: map[*spot]bool{}, at: s.rest.at}
		p.rests[s.rest.on] = r
	}
	r.mixed = r.mixed || r.at != s.rest.at
	r.spots[s] = true
}

func (p *parking) removeRest(s *spot) {
	if r := p.rests[s.rest.on]; r != nil {
		if delete(r.spots, s); len(r.spots) == 0 {
			delete(p.rests, s.rest.on)
		}
	}
}

// outdate takes back the classes whose answers rest on another version than this one, and reports whether there were any.
func (q *queue) outdate(on versioned, now uint64) (woken bool) {
	r := q.parked.rests[on]
	if r == nil || !r.mixed && r.at == now {
		return false
	}
	r.mixed, r.at = false, now
	for s := range r.spots {
		if s.rest.at != now {
			q.unpark(s)
			woken = true
		}
	}
	q.roused = q.roused || woken
	return woken
}

// nominee returns the capsule or the gang whose nomination a change may have made or ended; false: it has not.
func (c *Change) nominee() (capsule CapsuleID, gang GangID, ok bool) {
	switch do := c.Do.(type) {
	case Nominate:
		return do.Capsule, do.Gang, true
	case Place:
		return do.Capsule, "", true
	case Release:
		return do.Capsule, "", do.Final
	}
	return "", "", false
}

// touchClaims does so for all parts of a nomination that has ended or has been replaced.
func (v *View) touchClaims(n *Nomination) (woken bool) {
	if !n.Lives() {
		return false
	}
	for i := range n.Parts {
		woken = v.queue.offer(v.touchClaim(&n.Parts[i])) || woken
	}
	v.queue.roused = v.queue.roused || woken
	return woken
}

func (v *View) touchClaim(r *NominatedRoom) *NodeState {
	n := v.state.Node(r.Node)
	if n != nil {
		v.changed.add(n.index)
	}
	return n
}

// bringBackNominated takes back the parked classes that fit where a nomination has not been made after all.
func (q *queue) bringBackNominated(parts []NominatedRoom) (woken bool) {
	for i := range parts {
		woken = q.offer(q.state.Node(parts[i].Node)) || woken
	}
	return woken
}

// bringBackNominees takes back the parked classes of a capsule, or of the members of a gang.
func (q *queue) bringBackNominees(capsule CapsuleID, gang GangID) (woken bool) {
	for _, spec := range q.state.specsOf(capsule, gang) {
		if s := cmp.Or(q.parked.spots[spec], q.parked.waiting[spec]); s != nil {
			q.unpark(s)
			woken = true
		}
	}
	return woken
}

// fitsNominated reports whether a node with nominated room may take a nominee of the spec: one that outranks some of what is
// nominated there, wherever its own nomination is. It does not ask whether what the nominee does not outrank leaves enough.
func (s *State) fitsNominated(n *NodeState, spec *Spec) (fits bool) {
	var lowest *Nomination
	for of := range n.Nominated {
		if lowest == nil || lowest.Outranks(of) {
			lowest = of
		}
	}
	bare := *n
	bare.nominated = nil
	if lowest == nil || !bare.Fits(spec) {
		return false
	}
	s.nominations.Ascend(func(of *Nomination) bool {
		fits = slices.Contains(s.specsOf(of.Capsule, of.Gang), spec)
		return !fits && of.Outranks(lowest)
	})
	return fits
}

// lapsed returns proposals that end the nominations whose end has passed, and those of own work one of whose nodes can no
// longer serve: a view may show nodes as cordoned that others may use. It returns them again in every pass until they have
// ended, because a proposal may fail.
func (v *View) lapsed(now time.Time, mine func(*Capsule) bool) (out []Proposal) {
	for n := range v.state.Nominations() {
		if !now.Before(n.Ends) || v.state.broken(n) && v.state.nominates(n, mine) {
			out = append(out, Proposal{Do: []Commitment{Nominate{Capsule: n.Capsule, Gang: n.Gang, Since: n.Made}}})
		}
	}
	return out
}

// nominates reports whether a nomination is for a capsule that a predicate holds for, or for a gang with such a member.
func (s *State) nominates(n *Nomination, is func(*Capsule) bool) bool {
	if c := s.Capsule(n.Capsule); c != nil {
		return is(c)
	}
	for c := range s.Members(n.Gang) {
		if is(c) {
			return true
		}
	}
	return false
}

// broken reports whether a node has been changed so that it cannot serve the nomination, or is not to be used any more.
func (s *State) broken(n *Nomination) bool {
	for i := range n.Parts {
		r := &n.Parts[i]
		node := s.Node(r.Node)
		if node == nil || !node.Node.Schedulable() || node.Specification > n.Made && r.misfit(node.Node, s.specsOf(n.Capsule, n.Gang), &s.names) != "" {
			return true
		}
	}
	return false
}

// lapse returns when the next nomination ends, of those that had not when the view was made; zero: none does.
func (v *View) lapse() (at time.Time) {
	for n := range v.state.Nominations() {
		if v.now.Before(n.Ends) && (at.IsZero() || n.Ends.Before(at)) {
			at = n.Ends
		}
	}
	return at
}
