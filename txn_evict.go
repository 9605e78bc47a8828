package orbit

// The rules for wishes: voluntary disruptions, which take a running capsule off its node because a proposer wants that.
// Gangs, budgets and protections restrict them.

// mayReturn checks that a placed capsule that has not stopped may be released back to pending. If the capsule waits to
// begin, it may, and the release counts as a start that did not take place.
func (t *tx) mayReturn(e *txCapsule, at Instant) error {
	n := t.node(e.now.Node)
	if n.now.Node.State == Lost || e.was == nil || !e.was.Placed() { // a placement by this very proposal may be taken back
		return nil
	}
	if t.waitsToBegin(e, n) {
		t.countFailure(e, at, false)
		return nil
	}
	var g *txGang
	e.wished = true
	if e.now.Gang() != "" {
		g = t.gang(e.now.Gang())
		g.wished = true
	}
	switch {
	case n.drains():
		if g != nil {
			g.drains = true
		}
	case g == nil:
		return t.refuseReturn(e.now.ID, n, max(n.newestSpec(), e.newest()))
	case g.displaced == nil: // settleWishes decides: it may stand if the whole gang leaves
		g.displaced = t.refuseReturn(e.now.ID, n, max(n.newestSpec(), g.newest(), e.newest()))
	}
	return nil
}

// waitsToBegin reports whether a placement from before the proposal waits to begin, and its node confirms what begins
// all through the proposal. Such a capsule has never run there, so nothing is disrupted if it leaves.
func (t *tx) waitsToBegin(e *txCapsule, n *txNode) bool {
	return e.now.PlacedAt < t.rev && e.now.waitsToBegin(n.now.Node) && n.was != nil && n.was.Node.Confirms
}

// countFailure adds a failure of a placed capsule on its node to the capsule's record. Attempt is false if the capsule
// has not failed but only not begun.
func (t *tx) countFailure(e *txCapsule, at Instant, attempt bool) {
	if e.failures == nil && e.was != nil && !e.anew {
		e.failures = t.s.failuresOf(e.now.ID)
	}
	if e.failures == nil {
		e.failures = &Failures{}
	}
	e.failures = e.failures.plus(NodeFailure{Node: e.now.Node, At: at, Revision: t.rev}, e.now.PlaceTime, attempt)
}

// refuseReturn refuses a release of a capsule on a node that takes new work, unless a history is replayed.
func (t *tx) refuseReturn(id CapsuleID, n *txNode, newest Revision) error {
	if t.replays {
		return nil
	}
	state := n.now.Node.State.String()
	if n.now.Node.State != Ready {
		state = "not cordoned all through the proposal"
	}
	return t.refuse(Rejection{Capsule: id, Node: n.now.Node.ID, advice: "release it for good, move it with Evict, or say Stopped if it is"}, newest,
		"capsule %q is on node %q, which is %s", id, n.now.Node.ID, state)
}

// drains reports whether the node takes no new work before the proposal and throughout it. Otherwise one proposal could
// cordon the node, release its capsules, end the cordon, and place other work.
func (n *txNode) drains() bool {
	return n.was != nil && !n.was.Node.Schedulable() && !n.ready && !n.gone
}

// expels reports whether the node has, before and after the proposal, a taint that allows running capsules of the spec
// to be moved away.
func (n *txNode) expels(s *Spec) bool {
	return n.was != nil && n.was.Node.expels(s) && n.now.Node.expels(s)
}

// madeAt reports whether a placement or a nomination was made at the revision (since) that a commitment names. It is
// false for the proposal's own revision. Nobody knows that revision before the commit, and in a ledger of several
// processes a guess that is right on one state is wrong on the next.
//
// The histories of ledgers that did not yet know this rule have such guesses.
func (t *tx) madeAt(made, since Revision) bool { return made == since && !t.breaks(since >= t.rev) }

// evict executes an Evict. With For or ForGang the capsule makes way (evictFor); otherwise it is moved: the same
// proposal places it again.
func (t *tx) evict(c *Evict) (NodeID, error) {
	if c.For != "" || c.ForGang != "" {
		return t.evictFor(c, t.capsule(c.Capsule))
	}
	e, err := t.meant(c.Capsule)
	if err != nil {
		return "", err
	}
	at := Rejection{Capsule: c.Capsule, Node: c.From}
	if e.now.Node != c.From || !t.madeAt(e.now.PlacedAt, c.Since) {
		return "", t.refuse(at, e.newest(), "capsule %q is not on node %q since revision %d", c.Capsule, c.From, c.Since)
	}
	n := t.node(c.From)
	waits := t.waitsToBegin(e, n)
	if t.breaks(!waits && !e.now.Spec.Movable) && !n.drains() && !n.expels(e.now.Spec) && !t.s.isCovered(e.now.Spec) {
		at.advice = "submit it as Movable, put a budget on its group, or cordon the node first"
		g, newest := t.gang(e.now.Gang()), max(n.newestSpec(), e.newest(), t.s.left.Budgets)
		if g != nil {
			newest = max(newest, g.newest())
		}
		err := t.refuse(at, newest,
			"capsule %q is not movable and does not wait to begin, and node %q is not cordoned all through the proposal", c.Capsule, c.From)
		if g == nil || g.was == nil || !g.was.Broken() {
			return "", err
		}
		if g.displaced == nil { // settleWishes decides: it may stand if the whole gang leaves
			g.displaced = err
		}
	}
	e.wished = e.wished || !waits && n.now.Node.State != Lost
	if e.now.Gang() == "" {
		t.leave(e)
	} else {
		g := t.gang(e.now.Gang())
		restarts := g.restarts
		t.leave(e)
		g.wished, g.restarts = g.wished || !waits, restarts // a move does not count as a restart of the gang
	}
	e.now.Changed, e.dirty, e.moves = t.rev, true, true
	return c.From, nil
}

// evictFor takes a victim off its node. If the victim has left already, the eviction is passed over without an error.
func (t *tx) evictFor(c *Evict, e *txCapsule) (NodeID, error) {
	if e == nil || e.now.Node != c.From || !t.madeAt(e.now.PlacedAt, c.Since) || t.breaks(e.was == nil || e.was.PlacedAt != c.Since) {
		if t.replays {
			return "", t.refuse(Rejection{Capsule: c.Capsule, Node: c.From}, 0, "capsule %q is not on node %q since revision %d", c.Capsule, c.From, c.Since)
		}
		t.passed = append(t.passed, t.at)
		return "", nil
	}
	if e.now.Gang() != "" {
		g := t.gang(e.now.Gang())
		g.wished, g.evicts = true, true
	}
	e.wished = !c.recalls(&e.now)
	t.leave(e)
	e.now.Changed, e.dirty, e.evicted, e.evictedBy = t.rev, true, true, t.at
	t.evictions = append(t.evictions, t.at)
	return c.From, nil
}

// priority returns the priority at which a capsule evicts others: its own, or for a member of a gang the lowest of the
// roles with members left.
func (t *tx) priority(e *txCapsule) int32 {
	lowest := e.now.Spec.Priority
	if g := t.gangs.find(e.now.Gang()); g != nil {
		gang, _ := g.now.Priorities()
		lowest = min(lowest, gang)
	}
	return lowest
}

// settleMoves judges that each capsule that was taken off its node by a move is placed again.
func (t *tx) settleMoves() error {
	for i := range t.capsules.entries {
		if e := &t.capsules.entries[i]; e.moves && !e.now.Placed() {
			t.at = -1
			return t.refuse(Rejection{Capsule: e.now.ID}, 0, "capsule %q is taken off its node to be moved, and not placed again", e.now.ID)
		}
	}
	return nil
}

// settleWishes judges a gang from which wishes take members. Afterwards each role must have as many members placed as
// before, or every role its minimum, or no member of the gang may be placed.
func (t *tx) settleWishes(g *txGang) error {
	if !g.wished || g.was == nil {
		return nil
	}
	if g.displaced != nil && (!g.drains || !g.restarts) && !t.rebuilds(g) {
		return g.displaced
	}
	i := g.now.wanting()
	if g.now.Total() == 0 || i < 0 {
		return nil
	}
	for r, placed := range g.now.Placed {
		if placed < g.was.Placed[r] {
			role, newest := &g.now.Gang.Roles[i], g.newest()
			for k := range t.capsules.entries { // a member may have begun since the view, and have been free to leave before
				if e := &t.capsules.entries[k]; e.wished && e.was != nil && e.was.Gang() == g.now.Gang.ID {
					newest = max(newest, e.newest())
				}
			}
			t.at = -1
			return t.refuse(Rejection{}, newest, "gang %q: role %q would have %d members placed; a wish leaves at least %d, or none of the gang",
				g.now.Gang.ID, role.Name, g.now.Placed[i], g.now.Minimum(i))
		}
	}
	return nil
}

type txBudget struct {
	// Nil: there is none.
	was, now *budgetRecord
	// The revision from which departures of members are recorded, if no other budget covers them: that of this budget.
	left Revision
}

// budget returns the entry of a budget, with a nil record if there is none.
func (t *tx) budget(id BudgetID) *txBudget {
	if e := t.budgets.find(id); e != nil {
		return e
	}
	was, _ := t.s.budgets.Get(&budgetRecord{Budget: Budget{ID: id}})
	e := t.budgets.add(id)
	e.was, e.now = was, was
	return e
}

// putBudget makes or replaces a budget.
func (t *tx) putBudget(b *Budget) {
	e := t.budget(b.ID)
	e.now, e.left = &budgetRecord{*b, t.rev}, t.rev
}

// removeBudget ends a budget.
func (t *tx) removeBudget(id BudgetID) error {
	e := t.budget(id)
	if e.now == nil {
		return t.refuse(Rejection{Budget: id}, t.s.left.Budgets, "there is no budget %q", id)
	}
	e.now = nil
	return nil
}

// firstOfModules returns an empty count for each module that gets its first budget by this proposal, because the state
// has no count of its members yet. There may be many: a restored state gets all its budgets at once.
func (t *tx) firstOfModules() map[string]*health {
	var modules map[string]*health
	for i := range t.budgets.entries {
		if b := t.budgets.entries[i].now; b != nil && b.Module != "" && t.s.coverage(b.members()) == nil {
			if modules == nil {
				modules = map[string]*health{}
			}
			modules[b.Module] = &health{}
		}
	}
	return modules
}

// evictor returns the priority of the capsule or gang for which e is evicted. Nil: e is not evicted, or its evictor is
// not in the write-set.
func (t *tx) evictor(e *txCapsule) *int32 {
	if !e.evicted {
		return nil
	}
	c, _ := t.p.Do[e.evictedBy].(Evict)
	if g := t.gangs.find(c.ForGang); g != nil {
		priority, _ := g.now.Priorities()
		return &priority
	}
	if cause := t.capsules.find(c.For); cause != nil {
		priority := t.priority(cause)
		return &priority
	}
	return nil
}

// budgetsOf yields the budgets of a group or a module: those before the proposal, and those that it makes or changes.
func (t *tx) budgetsOf(of memberSet) func(func(*budgetRecord) bool) {
	return func(yield func(*budgetRecord) bool) {
		if c := t.s.coverage(of); c != nil {
			for _, b := range c.budgets {
				if !yield(b) {
					return
				}
			}
		}
		for i := range t.budgets.entries {
			if e := &t.budgets.entries[i]; e.now != nil && e.now != e.was && e.now.members() == of && !yield(e.now) {
				return
			}
		}
	}
}

// settleBudgets judges that wishes leave enough healthy members in each group and module that budgets cover.
func (t *tx) settleBudgets() error {
	if t.s.budgets.Len() == 0 && len(t.budgets.keys) == 0 {
		return nil
	}
	healthy := map[memberSet]health{}
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if !e.wished {
			continue
		}
		evictor := t.evictor(e)
		before, _ := t.health(e)
		spec := e.now.Spec
		if e.was != nil && e.was.Placed() { // this proposal may have adopted it again with a spec of other groups
			spec = e.was.Spec
		}
		for of := range spec.memberships {
			for b := range t.budgetsOf(of) {
				if b.passes(evictor) || b.FreeUnready && b.counts(before) == 0 {
					continue
				}
				if _, known := healthy[of]; !known {
					healthy[of] = t.healthyAfter(of)
				}
				if left := b.counts(healthy[of]); left < b.needed() {
					return t.refuseWish(e, b, left)
				}
			}
		}
	}
	return nil
}

// refuseWish refuses a proposal whose wish would break a budget. The refusal is a conflict only if, since the view, a
// member has stopped being healthy, the budget has changed, or the capsule has: it may have waited to begin, and so have
// been free to leave. If no budget covered the members before, departures were not recorded, and the current revision
// stands in.
func (t *tx) refuseWish(e *txCapsule, b *budgetRecord, healthy int) error {
	newest := t.s.rev
	if c := t.s.coverage(b.members()); c != nil {
		newest = c.left
	}
	if own := t.budgets.find(b.ID); own == nil {
		newest = max(newest, b.changed)
	} else if own.was != nil {
		newest = max(newest, own.was.changed)
	}
	newest = max(newest, e.newest())
	if b.FreeUnready && e.was != nil && e.was.Placed() { // in the view it may have been unready, and so free to leave
		newest = max(newest, t.nodes.find(e.was.Node).newestSpec())
	}
	t.at = -1
	r := Rejection{Capsule: e.now.ID, Budget: b.ID, Want: int64(b.needed()), Free: int64(healthy), advice: "wait until more members are placed and ready, or take fewer away"}
	return t.refuse(r, newest, "%s", b.refusal(healthy))
}

// healthyAfter counts the members that are healthy both before and after the proposal. A member that the proposal
// itself has placed does not count.
func (t *tx) healthyAfter(of memberSet) health {
	sum := t.s.healthy(of)
	t.healths(func(spec *Spec, before, after health, arrives bool) {
		if spec.isMember(of) {
			stays := btoi(!arrives) // min: a proposal that ends Confirms of a node does not make members ready
			sum = sum.plus(before, -1).plus(health{min(before.placed, after.placed), min(before.ready, after.ready)}, stays)
		}
	})
	return sum
}

// healths visits all capsules whose health may change by the proposal, with their health before and after it, and
// whether the proposal has placed them. These are the capsules of the write-set, and those on nodes that become lost or
// change Confirms.
func (t *tx) healths(visit func(spec *Spec, before, after health, arrives bool)) {
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		before, after := t.health(e)
		if e.anew || e.adopted && e.was != nil && e.was.Spec != e.now.Spec {
			visit(e.was.Spec, before, health{}, false)
			before = health{}
		}
		visit(e.now.Spec, before, after, e.arrives)
	}
	for i := range t.nodes.entries {
		e := &t.nodes.entries[i]
		if e.was == nil || e.gone || e.was.Node == e.now.Node {
			continue
		}
		if was, now := e.was.Node, e.now.Node; was.Confirms != now.Confirms || (was.State == Lost) != (now.State == Lost) {
			for c := range t.s.On(now.ID) {
				if t.capsules.find(c.ID) == nil {
					visit(c.Spec, was.health(c), now.health(c), false)
				}
			}
		}
	}
}

// health returns the health of a capsule of the write-set before the proposal and after it.
func (t *tx) health(e *txCapsule) (before, after health) {
	if e.was != nil {
		before = t.s.health(e.was)
	}
	if !e.now.Placed() {
		return before, after
	}
	if n := t.nodes.find(e.now.Node); n != nil {
		return before, n.now.Node.health(&e.now)
	}
	return before, t.s.health(&e.now)
}

// replaces reports whether a gang that was broken before the proposal and is not broken after it precedes another one,
// by the state before.
func (t *tx) replaces(gang, other GangID) bool {
	g := t.gangs.find(gang)
	return g != nil && g.now.wanting() < 0 && t.s.Precedes(gang, other)
}

// rebuilds reports whether the proposal takes a broken gang off its nodes as a whole, and leaves it without placed
// members or with the minimum of every role.
func (t *tx) rebuilds(g *txGang) bool {
	if g.was == nil || !g.was.Broken() || g.now.Total() > 0 && g.now.wanting() >= 0 {
		return false
	}
	left := 0
	for i := range t.capsules.entries {
		e := &t.capsules.entries[i]
		if e.was != nil && e.was.Gang() == g.was.Gang.ID && e.was.Placed() && (!e.now.Placed() || e.now.PlacedAt != e.was.PlacedAt) {
			left++
		}
	}
	return left == g.was.Total()
}

// besideStopped restricts a proposal that has a Confirm or a Stopped release. Beside these it may only release capsules
// for good, and place again capsules that an earlier Stopped release has returned. Other commitments could use room or
// facts that the agent reports.
func (v *validator) besideStopped(do []Commitment) {
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
