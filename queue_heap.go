package orbit

import (
	"cmp"
	"slices"
	"time"
)

// turn is a class that has work, and what decides when it is served: higher priority first, then whose first entry
// was submitted first.
type turn struct {
	submitted uint64
	priority  int32
	class     *class
}

// before orders turns. No two classes have an entry in common.
func (t *turn) before(o *turn) bool {
	if t.priority != o.priority {
		return t.priority > o.priority
	}
	return t.submitted < o.submitted
}

// readyHeap is a heap of turns, each with fanout below it. A class knows where its turn is (class.at).
//
// With many classes, nearly every capsule that is taken moves a turn from the top to the bottom. So the heap holds the
// keys itself and is flat: a move down touches few cache lines and updates class.at of few classes.
type readyHeap []turn

const fanout = 4

// put inserts a class at the position of its turn, or moves it there.
func (h *readyHeap) put(t turn) {
	if t.class.at < 0 {
		t.class.at = len(*h)
		*h = append(*h, t)
	}
	h.sift(t.class.at, t)
}

// remove takes a class out, if it is there.
func (h *readyHeap) remove(k *class) {
	if k.at < 0 {
		return
	}
	last := len(*h) - 1
	moved, at := (*h)[last], k.at
	(*h)[last] = turn{}
	*h = (*h)[:last]
	if k.at = -1; at < last {
		h.sift(at, moved)
	}
}

// sift fills the gap at i with a turn, after others have made way for it, up or down.
func (h readyHeap) sift(i int, t turn) {
	for i > 0 && t.before(&h[(i-1)/fanout]) {
		h.fill(i, h[(i-1)/fanout])
		i = (i - 1) / fanout
	}
	for {
		next := h.first(fanout*i + 1)
		if next < 0 || !h[next].before(&t) {
			break
		}
		h.fill(i, h[next])
		i = next
	}
	h.fill(i, t)
}

// first returns the position of the first in order among the children that begin at a position; -1 if there are none.
func (h readyHeap) first(from int) int {
	if from >= len(h) {
		return -1
	}
	best := from
	for i := from + 1; i < min(from+fanout, len(h)); i++ {
		if h[i].before(&h[best]) {
			best = i
		}
	}
	return best
}

// fill writes a turn down at i.
func (h readyHeap) fill(i int, t turn) {
	h[i] = t
	t.class.at = i
}

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
	if was := old.Capsule(capsule); was != nil {
		gang = cmp.Or(gang, was.Gang)
		woken = v.touchClaims(was.Nomination)
	}
	if was := old.Gang(gang); was != nil {
		woken = v.touchClaims(was.Nomination) || woken
	}
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
		woken = v.queue.bringBack(v.touchClaim(&n.Parts[i]), nil) || woken
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
		woken = q.bringBack(q.state.Node(parts[i].Node), nil) || woken
	}
	return woken
}

// fitsNominated reports whether a node has room for a capsule of the spec on which room is nominated for such a capsule: it
// may outrank what else is nominated there.
func (s *State) fitsNominated(n *NodeState, spec *Spec) bool {
	for of := range n.Nominated {
		if slices.Contains(s.specsOf(of.Capsule, of.Gang), spec) {
			bare := *n
			bare.nominated = nil
			return bare.Fits(spec)
		}
	}
	return false
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
		if node == nil || node.Node.Unschedulable || node.Specification > n.Made && r.misfit(node.Node, s.specsOf(n.Capsule, n.Gang), &s.names) != "" {
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
