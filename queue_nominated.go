package orbit

import (
	"cmp"
	"maps"
	"math"
	"slices"
	"time"
)

// nomineeEntry is an entry of a nominee. In a class, nominees are served by rank and before all other entries: a node
// that is closed to one of them is also closed to those behind it. So if a class is parked because its first entry fits
// nowhere, none behind that entry fits.
type nomineeEntry struct {
	entry
	of *Nomination
}

// Before orders nominees of one class by rank.
func (e nomineeEntry) Before(o nomineeEntry) bool { return e.of.Outranks(o.of) }

// putBack files an entry that is out of order: its capsule is no newer than the others of its class, is nominated, or is
// a member of a broken gang.
func (k *class) putBack(e entry, c *Capsule, state *State) {
	switch {
	case state.inBroken(c):
		k.urgent.Push(e)
	case c.Nomination().Lives():
		k.nominees.Push(nomineeEntry{e, c.Nomination()})
	default:
		k.back.Push(e)
	}
}

// hold holds the entries of the last batch back. Now and then it drops the void entries among those held.
func (q *queue) hold() {
	for _, e := range q.batch {
		if c := q.valid(e); c != nil && c.Nomination().Lives() {
			q.heldNominees = append(q.heldNominees, e)
		} else {
			q.held = append(q.held, e)
		}
	}
	q.batch = q.batch[:0]
	if len(q.held) >= 2*q.heldValid+compactFrom {
		q.held = slices.DeleteFunc(q.held, func(e entry) bool { return q.valid(e) == nil })
		q.heldValid = len(q.held)
	}
}

// giveHeldBack returns the n entries that have been held longest to the queue, and as many of nominees.
func (q *queue) giveHeldBack(n int) {
	q.held, q.heldNominees = q.giveBack(q.held, n), q.giveBack(q.heldNominees, n)
}

// recall returns to the queue the held entries of the classes for which there may be room again, and drops void ones.
func (q *queue) recall() {
	if len(q.recalled) == 0 {
		return
	}
	for _, held := range []*[]entry{&q.held, &q.heldNominees} {
		*held = slices.DeleteFunc(*held, func(e entry) bool {
			c := q.valid(e)
			if c != nil && q.recalled[c.Spec] {
				q.putBack(e, c)
			}
			return c == nil || q.recalled[c.Spec]
		})
	}
	clear(q.recalled)
}

// holdsNominee reports whether a nominee of a class is held back. Then others of the class may fit nowhere beside the
// room that is nominated for it, although the nominee fits.
func (q *queue) holdsNominee(spec *Spec) bool {
	return slices.ContainsFunc(q.heldNominees, func(e entry) bool {
		c := q.valid(e)
		return c != nil && c.Spec == spec
	})
}

// nominee returns the nomination of the first entry of a class; nil: that entry is not nominated.
func (k *class) nominee() *Nomination {
	if len(k.nominees) == 0 {
		return nil
	}
	return k.nominees[0].of
}

// touchNominated marks the nodes as changed on which a change has nominated room or has ended a nomination. It unparks
// the classes that fit where a nomination has ended, or where a new one lends its room, and reports whether there were
// any. Old is the state before the change.
func (v *View) touchNominated(c *Change, old *State) (woken bool) {
	nominee := effectOf(c.Do).nominee
	if nominee == (Nominee{}) {
		return false
	}
	if do, is := c.Do.(Nominate); is {
		for i := range do.Parts {
			n := v.touchClaim(&do.Parts[i])
			v.suspectNode(n)
			woken = do.Lends > 0 && v.queue.offer(n) || woken
		}
	}
	v.queue.roused = v.queue.roused || woken
	if old.nominations.Len() == 0 { // there was none that could have ended
		return woken
	}
	gang := nominee.Gang
	if was := old.Capsule(nominee.Capsule); was != nil {
		gang = cmp.Or(gang, was.Gang())
		woken = v.touchClaims(was.Nomination()) || woken
	}
	if was := old.Gang(gang); was != nil {
		woken = v.touchClaims(was.Nomination) || woken
	}
	return woken
}

// versioned is what an answer rests on besides the nodes, as it is given to NoFit.DependsOn.
type versioned interface{ Version(view *View) uint64 }

// rest is what an answer rests on, and the version at which the answer was given. The zero rest: it rests on nothing
// besides the nodes.
type rest struct {
	on versioned
	at uint64
}

// resting are the parked classes whose answers rest on the same versioned value.
type resting struct {
	spots map[*parkedClass]bool
	// The version at which all answers were given; if mixed is true, they were given at several versions.
	at    uint64
	mixed bool
}

// addRest files a parked class by what its answer rests on.
func (p *parking) addRest(s *parkedClass) {
	if s.rest.on == nil {
		return
	}
	r := p.rests[s.rest.on]
	if r == nil {
		r = &resting{spots: map[*parkedClass]bool{}, at: s.rest.at}
		p.rests[s.rest.on] = r
	}
	r.mixed = r.mixed || r.at != s.rest.at
	r.spots[s] = true
}

func (p *parking) removeRest(s *parkedClass) {
	if r := p.rests[s.rest.on]; r != nil {
		if delete(r.spots, s); len(r.spots) == 0 {
			delete(p.rests, s.rest.on)
		}
	}
}

// outdate unparks the classes whose answers were given at another version than now, and reports whether there were any.
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

// touchClaims marks all nodes of a nomination that has ended or was replaced, and unparks the classes that fit there.
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

// touchClaim marks the node of one part of a nomination as changed, and returns it; nil: there is no such node.
func (v *View) touchClaim(r *NominatedRoom) *NodeState {
	n := v.state.Node(r.Node)
	if n != nil {
		v.changed.add(n.index)
	}
	return n
}

// bringBackNominated unparks the classes that fit on the nodes of a nomination that was planned and not made.
func (q *queue) bringBackNominated(parts []NominatedRoom) (woken bool) {
	for i := range parts {
		woken = q.offer(q.state.Node(parts[i].Node)) || woken
	}
	return woken
}

// bringBackNominees unparks the class of a capsule, or the classes of the members of a gang.
func (q *queue) bringBackNominees(capsule CapsuleID, gang GangID) (woken bool) {
	for _, spec := range q.state.specsOf(capsule, gang) {
		if s := cmp.Or(q.parked.spots[spec], q.parked.waiting[spec]); s != nil {
			q.unpark(s)
			woken = true
		}
	}
	return woken
}

// lapsed returns proposals that end nominations: those whose end has passed, and those of own work of which a node can
// no longer serve. Only the owner ends the latter, because a view may show nodes as cordoned that other engines may
// use. lapsed returns a proposal again in every pass until the nomination has ended, because a proposal may fail. It
// reads only the nominations that it returns, and suspect nodes.
func (v *View) lapsed(now time.Time, mine func(*Capsule) bool) (out []Proposal) {
	if first, ok := v.state.lapses.Min(); ok && !now.Before(first.Ends) {
		v.state.lapses.Ascend(func(n *Nomination) bool {
			over := !now.Before(n.Ends)
			if over {
				out = append(out, n.ending())
			}
			return over
		})
	}
	if len(v.suspect) > 0 {
		out = append(out, v.unserved(now, mine)...)
	}
	return out
}

// unserved returns such proposals for the nominations of own work that a suspect node can no longer serve and whose end
// has not passed. It forgets the suspect nodes that serve all their nominations.
func (v *View) unserved(now time.Time, mine func(*Capsule) bool) (out []Proposal) {
	seen := map[*Nomination]bool{}
	for _, slot := range slices.Sorted(maps.Keys(v.suspect)) {
		serves, node := true, v.state.NodeByIndex(int(slot))
		if node != nil && node.nominated != nil {
			for _, p := range node.nominated.parts {
				if !v.state.broken(node, p) {
					continue
				}
				if serves = false; !seen[p.of] && now.Before(p.of.Ends) && v.state.nominates(p.of, mine) {
					seen[p.of] = true
					out = append(out, p.of.ending())
				}
			}
		}
		if serves {
			delete(v.suspect, slot)
		}
	}
	return out
}

// suspectNode records that a node may no longer serve what is nominated there, if anything is. Call it when the node's
// description has changed, and when room is nominated there, because another engine's view may show the node otherwise.
func (v *View) suspectNode(n *NodeState) {
	if n != nil && n.nominated != nil {
		if v.suspect == nil {
			v.suspect = map[uint32]bool{}
		}
		v.suspect[n.index] = true
	}
}

// suspectAll marks all nodes on which room is nominated as suspect.
func (v *View) suspectAll() {
	clear(v.suspect)
	for n := range v.state.Nominations() {
		for i := range n.Parts {
			v.suspectNode(v.state.Node(n.Parts[i].Node))
		}
	}
}

// lapse returns the end of the nomination that ends next after the instant of the view; zero: there is none.
func (v *View) lapse() time.Time {
	last, ok := v.state.lapses.Max()
	if !ok || !v.now.Before(last.Ends) {
		return time.Time{}
	}
	next := last.Ends
	v.state.lapses.AscendGreaterOrEqual(&Nomination{Ends: v.now, Rank: math.MaxInt32}, func(n *Nomination) bool {
		if v.now.Before(n.Ends) {
			next = n.Ends
			return false
		}
		return true
	})
	return next
}

// retry adds to the next batch one capsule each of up to most classes that have been parked long enough. The classes
// stay parked until settle.
func (q *queue) retry(now time.Time, most int) {
	for most > 0 {
		at, ok := q.parked.due()
		if !ok || now.Before(at) {
			break
		}
		s := q.parked.ends.Pop().spot
		if e, ok := q.next(s.class); ok {
			s.trial = true
			q.trials = append(q.trials, q.trialOf(e, s.class.spec))
			q.tried = append(q.tried, s.class)
			most--
		} else {
			q.unpark(s) // which forgets the class, because it has no valid entries
		}
	}
	slices.SortFunc(q.trials, func(a, b trial) int {
		return cmp.Or(cmp.Compare(b.priority, a.priority), cmp.Compare(a.turn, b.turn))
	})
}

// endTrials unparks the classes that were tried again and were not parked anew.
func (q *queue) endTrials() {
	for _, k := range q.tried {
		if k.spot != nil && k.spot.trial {
			q.unpark(k.spot)
		}
	}
	clear(q.tried)
	q.tried, q.trials = q.tried[:0], nil
}

// unparkAll unparks all classes, and those that wait for room without being parked. It reports whether there were any.
func (q *queue) unparkAll() (woken bool) {
	for _, spots := range []map[*Spec]*parkedClass{q.parked.spots, q.parked.waiting} {
		for _, s := range spots {
			q.unpark(s)
			woken = true
		}
	}
	q.roused = q.roused || woken
	return woken
}
