package orbit

import (
	"cmp"
	"fmt"
	"iter"
	"math"
	"slices"
)

// A capsule that was taken off its node may still run there. Until it has stopped, the node keeps a record of it
// ([Remains]), and a capsule that was placed there since and does not fit beside it may not begin. The agent of the
// node reports with a [Confirm] that a capsule begins, is ready, or has stopped.

// check implements [Commitment].
func (c Confirm) check(v *validator) Commitment {
	v.ref("capsule id", string(c.Capsule))
	if btoi(c.Begun)+btoi(c.Ready)+btoi(c.NotReady)+btoi(c.Stopped) != 1 || c.Since == 0 {
		v.fail("confirmation of capsule %q says Begun %v, Ready %v, NotReady %v, Stopped %v, since revision %d; it needs exactly one, and the revision of the placement",
			c.Capsule, c.Begun, c.Ready, c.NotReady, c.Stopped, c.Since)
	}
	return nil
}

// execute implements [Commitment].
func (c Confirm) execute(t *tx) (NodeID, error) {
	return t.confirm(&c)
}

func (c Confirm) subject() CapsuleID { return c.Capsule }

func (c Confirm) effect() effect {
	switch {
	case c.Stopped:
		return effect{stops: c.Capsule, gives: true}
	case c.Ready:
		return effect{heals: c.Capsule}
	}
	return effect{}
}

// beside refuses what may not stand beside a Confirm.
func (c Confirm) beside(v *validator, all []Commitment) {
	if v.limits != &noLimits {
		v.besideReport(all)
	}
}

// confirm executes a Confirm: the capsule has begun to run, is ready, is ready no more, or has stopped.
func (t *tx) confirm(c *Confirm) (NodeID, error) {
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	if c.Stopped {
		return t.confirmStopped(c, e)
	}
	if s := e.now.surging(); s != nil && t.madeAt(s.Since, c.Since) && (c.Ready || c.NotReady) {
		return t.confirmSurging(c, e, s)
	}
	at := Rejection{Capsule: c.Capsule, Node: e.now.Node}
	switch {
	case !e.now.Placed() || !t.madeAt(e.now.PlacedAt, c.Since):
		return "", t.refuse(at, e.newest(), "capsule %q has no placement made at revision %d", c.Capsule, c.Since)
	case t.replays:
	case c.NotReady && !e.now.Ready:
		return "", t.refuse(at, e.newest(), "capsule %q was not ready on node %q", c.Capsule, e.now.Node)
	case c.Begun && e.now.Begun || c.Ready && e.now.Ready:
		return "", t.refuse(at, e.newest(), "capsule %q has already begun on node %q; ready: %v", c.Capsule, e.now.Node, e.now.Ready)
	}
	n := t.node(e.now.Node)
	if t.breaks(!n.now.Node.Confirms || n.now.Node.State == Lost) {
		return "", t.refuse(at, max(n.newestSpec(), e.newest()),
			"nothing is confirmed of capsule %q on node %q: the node is lost, or does not confirm",
			c.Capsule, e.now.Node)
	}
	if seen := t.p.View; !e.now.Begun && seen != 0 && e.was != nil && e.newestSpec() > seen { // the agent would start it with an old spec
		at.advice = "start it with the spec that its record has now"
		return "", t.refuse(at, e.newestSpec(), "capsule %q has got another spec after the view, and its agent was about to start it with the old one", c.Capsule)
	}
	if r := t.waitsFor(e, n); r != nil { // never if it has begun
		return "", t.refuse(at, max(r.Left, e.newest()),
			"capsule %q may not begin on node %q yet: capsule %q, which left node %q at revision %d, has not stopped",
			c.Capsule, e.now.Node, r.Capsule, r.Node, r.Left)
	}
	if over := t.overfull(e, n); over != nil && !t.replays { // never if it has begun
		over.Capsule, over.Node, over.advice = c.Capsule, e.now.Node, "release it: it is pending again, and may be placed elsewhere"
		return "", t.refuse(*over, max(n.newest(), e.newest()), "capsule %q may not begin on node %q: without the placements that came later, the node has too little room for it beside what others run there",
			c.Capsule, e.now.Node)
	}
	e.now.Begun, e.now.Ready, e.now.Waits, e.now.Changed, e.dirty = true, c.Ready, false, t.rev, true
	if c.Ready {
		t.endSurge(e)
	}
	return e.now.Node, nil
}

// overfull returns of what a node has too little for a placed capsule to begin there; nil: it may begin. It counts what
// runs there, what still stops there, and what was placed before the capsule and has not begun. Ledgers admit no more than
// a node has, so there is too little only if a capsule was adopted, or the node now has less. Holds do not count,
// because they do not run.
func (t *tx) overfull(e *txCapsule, n *txNode) *Rejection {
	if e.now.Begun || e.now.Adopted || !n.now.mayBeOver(&e.now) {
		return nil
	}
	ahead := runLoad{extras: map[string]int64{}}
	for c := range t.eachOn(e.now.Node) {
		later := cmp.Or(cmp.Compare(c.PlacedAt, e.now.PlacedAt), cmp.Compare(c.Submitted, e.now.Submitted)) > 0
		if !later || c.Begun || c.Adopted {
			ahead.add(c.Spec, c.Devices)
			for _, x := range c.Spec.Extras { // what stops may still be waited for
				ahead.extras[x.Name] = min(ahead.extras[x.Name], math.MaxInt64-x.Amount) + x.Amount
			}
		}
	}
	for r := range n.now.Stopping {
		ahead.add(r.Spec, r.Devices)
	}
	return ahead.exceeds(n.now.Node, &e.now, &t.s.names)
}

// eachOn yields the capsules that are placed on a node after the commitments executed so far, in no particular order.
func (t *tx) eachOn(id NodeID) iter.Seq[*Capsule] {
	return func(yield func(*Capsule) bool) {
		for c := range t.s.On(id) {
			if t.capsules.find(c.ID) == nil && !yield(c) {
				return
			}
		}
		for i := range t.capsules.entries {
			if e := &t.capsules.entries[i]; e.now.Node == id && !yield(&e.now) {
				return
			}
		}
	}
}

// runLoad is what capsules take of a node. Sums that would overflow are as large as can be.
type runLoad struct {
	load
	extras map[string]int64
}

// add adds the resources and devices of a capsule.
func (l *runLoad) add(spec *Spec, set DeviceSet) {
	for d, x := range spec.Envelope.Reservation {
		l.room[d] = min(l.room[d], math.MaxInt64-x) + x
	}
	l.devices.add(set, int32(spec.Devices.Milli))
}

// exceeds returns the first of the things that a capsule takes, and that are part of the load, of which the node has less
// than the load; nil: it has enough.
func (l *runLoad) exceeds(n *Node, c *Capsule, names *dimensionNames) *Rejection {
	short := func(what string, want, sum, room int64) *Rejection {
		return &Rejection{Dimension: what, Want: want, Free: max(0, want-(sum-room))}
	}
	for d, want := range c.Spec.Envelope.Reservation {
		if want > 0 && l.room[d] > n.Capacity[d] {
			r := short(names.name(d), want, l.room[d], n.Capacity[d])
			r.dimension = uint8(d + 1)
			return r
		}
	}
	for i, used := range l.devices {
		if c.Devices.Has(i) && used > deviceMilli {
			return short(fmt.Sprintf("device %d", i), int64(c.Spec.Devices.Milli), int64(used), deviceMilli)
		}
	}
	for _, x := range c.Spec.Extras {
		if room := amountOf(n.Extras, x.Name); x.Amount > 0 && l.extras[x.Name] > room {
			return short(x.Name, x.Amount, l.extras[x.Name], room)
		}
	}
	return nil
}

// confirmStopped ends the remains of a placement. Nothing else in the capsule's record changes.
func (t *tx) confirmStopped(c *Confirm, e *txCapsule) (NodeID, error) {
	r, err := t.remainsSince(e, c.Since, "release it with Stopped")
	if err != nil {
		return "", err
	}
	t.dropRemains(r)
	e.now.ended(r)
	return r.Node, nil
}

// remainsSince returns what remains of the placement that a capsule got at a revision. The advice is for who means the placement that
// the capsule still has.
func (t *tx) remainsSince(e *txCapsule, since Revision, advice string) (*Remains, error) {
	for _, r := range [...]*Remains{e.now.Remains(), e.now.Surge()} {
		if r != nil && t.madeAt(r.Since, since) {
			return r, nil
		}
	}
	at := Rejection{Capsule: e.now.ID, Node: e.now.Node}
	if e.now.Placed() && e.now.PlacedAt == since {
		at.advice = advice
	}
	return nil, t.refuse(at, max(e.newest(), t.s.left.Remains),
		"nothing remains of capsule %q from a placement at revision %d: it was not taken off its node, or has stopped there",
		e.now.ID, since)
}

// waitsFor returns the first remains that have to end before a placed capsule begins on its node; nil: it may begin.
func (t *tx) waitsFor(e *txCapsule, n *txNode) *Remains {
	if r := e.now.Remains(); r != nil {
		return r
	}
	if e.now.Waits {
		if r := n.now.firstLeaving(); r != nil && r.Left <= e.now.PlacedAt {
			return r
		}
	}
	return nil
}

// settleWaits decides which of the capsules that the proposal places have to wait before they begin.
func (t *tx) settleWaits() {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.places() {
			n := &t.nodes.find(e.now.Node).now
			e.now.Waits = n.remains != nil && (e.after && n.firstLeaving() != nil || !n.fitsBeside(&e.now))
		}
	}
}

// places reports whether the proposal places the capsule, and does not adopt it.
func (c *txCapsule) places() bool { return c.arrives && !c.adopted && c.now.Placed() }

// judgeWaits refuses a placement that would have to wait on a node that does not confirm, because there is no agent to
// end that wait.
func (t *tx) judgeWaits() error {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.places() || !e.now.Waits && e.now.Remains() == nil {
			continue
		}
		n := t.nodes.find(e.now.Node)
		if n.now.Node.Confirms {
			continue
		}
		r := e.now.Remains()
		if r == nil {
			r = n.now.firstLeaving()
		}
		newest, leaves := max(e.newest(), n.newest()), "leaves it by this proposal"
		if r.Left <= t.s.rev {
			newest, leaves = max(newest, r.Left), fmt.Sprintf("left it at revision %d", r.Left)
		}
		t.at = -1
		return t.refuse(Rejection{Capsule: e.now.ID, Node: e.now.Node}, newest,
			"capsule %q has to wait until capsule %q has stopped on node %q (it %s); node %q does not confirm, so nothing waits there",
			e.now.ID, r.Capsule, r.Node, leaves, e.now.Node)
	}
	return nil
}

// remain clears Begun, Ready, Waits and Adopted in the record of a capsule that is taken off its node. If the capsule
// had begun to run there, and the node is not lost, remain also puts remains on the node.
func (t *tx) remain(e *txCapsule, n *txNode) {
	if e.now.Begun && n.now.Node.State != Lost {
		r := &Remains{Capsule: e.now.ID, Spec: e.now.Spec, Node: n.now.Node.ID, Devices: e.now.Devices, Since: e.now.PlacedAt, Left: t.rev, Adopted: e.now.Adopted}
		e.now.setRemains(r)
		t.setRemains(n, n.now.withRemains(r))
	}
	e.now.Begun, e.now.Ready, e.now.Waits, e.now.Adopted = false, false, false, false
	e.now.setRare(e.now.rare().ordered(false))
}

// dropRemains takes remains off their node. If they surge, they give back what they have kept there.
func (t *tx) dropRemains(r *Remains) {
	n := t.node(r.Node) // not nil: a node with remains cannot leave
	n.now.remains, n.dirty, n.stops = remainsWithout(n.now.remains, r), true, true
	if r.Surge {
		n.now.gives(r.Spec.Envelope.Reservation, r.Devices, r.Spec.Devices.Milli)
		n.now.Usage = t.rev
	}
}

// setRemains replaces the remains on a node.
func (t *tx) setRemains(n *txNode, list []*Remains) {
	n.now.remains, n.dirty, n.stops = nil, true, true
	if len(list) > 0 {
		n.now.remains = &list
	}
}

// endAllRemains ends all remains on a node that is lost, because nothing runs there any more.
func (t *tx) endAllRemains(n *txNode) {
	if n.now.remains == nil {
		return
	}
	for _, r := range *n.now.remains {
		if r.Surge { // its capsule counts as healthy no longer, so it joins the write-set
			t.capsule(r.Capsule)
			t.dropRemains(r)
		}
		if e := t.capsules.find(r.Capsule); e != nil {
			e.now.ended(r)
		}
	}
	t.setRemains(n, nil)
}

// forgetEnded removes the remains from the record of a capsule that joins the write-set, if an earlier step of the
// proposal has ended them.
func (t *tx) forgetEnded(e *txCapsule) {
	for _, r := range [...]*Remains{e.now.Remains(), e.now.Surge()} {
		if r == nil {
			continue
		}
		if n := t.nodes.find(r.Node); n != nil && (n.now.remains == nil || !slices.Contains(*n.now.remains, r)) {
			e.now.ended(r)
		}
	}
}

// publishStopped removes remains that have ended from the capsules' records in the state, also from records that the
// proposal does not write otherwise.
func (s *State) publishStopped(t *tx) {
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if e.was == nil || e.was.remains == nil || !e.stops {
			continue
		}
		for _, r := range *e.was.remains {
			if !e.gone && e.now.remains != nil && slices.Contains(*e.now.remains, r) {
				continue
			}
			s.left.Remains = s.rev
			s.late = 0 // dropReleased visits the records again that it has kept for their remains
			_, slot := s.findCapsule(r.Capsule)
			s.capsules.Own(slot, s.owner).capsule.ended(r)
		}
	}
}

// remains checks the remains of a capsule, and adds the capsule to the counts of the node on which it runs or stops.
func (v *verifier) remains(c *Capsule) {
	for _, r := range [...]*Remains{c.Remains(), c.Surge()} {
		if r == nil {
			continue
		}
		n := v.s.Node(r.Node)
		if n == nil || n.Node.State == Lost || n.remains == nil || !slices.Contains(*n.remains, r) || r.Capsule != c.ID || r.Spec == nil {
			v.fail("capsule %q has remains on node %q, but the node is not there, is lost, or does not list them", c.ID, r.Node)
			return
		}
		if r.Since == 0 || r.Since > r.Left || r.Left > v.s.rev || r == c.Remains() && c.Placed() && c.PlacedAt < r.Left {
			v.fail(
				"capsule %q was placed at revision %d, left its node at %d and was placed again at %d: these cannot follow each other",
				c.ID, r.Since, r.Left, c.PlacedAt)
		}
		v.nodes[n.index].remains++
		since := r.Since
		if r.Adopted {
			since = r.Left // it may have grown until then
		}
		v.runs(r.Node, r.Spec, since, r.Adopted)
		if r.Surge {
			v.nodes[n.index].claim(r.Spec.Envelope.Reservation, r.Devices, r.Spec.Devices.Milli, since, r.Adopted)
		}
	}
	if c.Begun && (!c.Placed() || c.Waits || c.Remains() != nil) || c.Waits && !c.Placed() || c.Ready && !c.Begun || c.Adopted && (!c.Placed() || c.Waits && !c.Respecified) {
		v.fail("capsule %q on node %q: begun is %v, ready %v and waiting to begin %v; these exclude each other, or it is not placed",
			c.ID, c.Node, c.Begun, c.Ready, c.Waits || c.Remains() != nil)
	}
	if c.Begun {
		v.runs(c.Node, c.Spec, c.claimedAt(), c.Adopted)
	}
}

// runs adds a capsule to the counts of a node on which it runs, or stops.
func (v *verifier) runs(node NodeID, spec *Spec, since Revision, adopted bool) {
	if n := v.s.Node(node); n != nil {
		r := &v.nodes[n.index]
		for d, x := range spec.Envelope.Reservation {
			r.runs[d] += uint64(x)
			switch {
			case x == 0:
			case adopted:
				r.startedAdopted[d] = max(r.startedAdopted[d], since)
			default:
				r.started[d] = max(r.started[d], since)
			}
		}
	}
}

// besideReport refuses a proposal that has a Confirm or a Stopped release, and also a commitment that may not stand
// beside them. Allowed are Confirms, releases of capsules that are Stopped or Final, and a Place of a capsule that an
// earlier Stopped release of the proposal names. Any other commitment could already use room that the report frees, or
// rest on what it says.
func (v *validator) besideReport(do []Commitment) {
	if v.stopped != nil {
		return
	}
	v.stopped = map[CapsuleID]bool{}
	for i, c := range do {
		place, again := c.(Place)
		r, ends := c.(Release)
		if ends && r.Stopped {
			v.stopped[r.Capsule] = true
		}
		_, confirms := c.(Confirm)
		release := ends && r.Hold == "" && (r.Stopped || r.Final)
		if !confirms && !release && (!again || !v.stopped[place.Capsule]) {
			v.at = i
			v.fail("a %T beside a Confirm or a Stopped release; propose them apart", c)
		}
	}
}
