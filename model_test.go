package orbit

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strings"
	"time"
)

// The model is the ledger's rules once more, as dumb as it can be: plain maps, everything recounted whenever it is
// asked for, a proposal tried on a full copy of the world. It shares the vocabulary with the ledger
// (Proposal, Spec, Node, Predicate.Matches) and nothing of its judgement: no tx, no slots, no chunks.
type model struct {
	rev      Revision
	limits   Limits
	nodes    map[NodeID]modelNode
	capsules map[CapsuleID]modelCapsule
	gangs    map[GangID]modelGang
	holds    map[HoldID]modelHold
	marks    map[string]modelMark
	budgets  map[BudgetID]modelBudget
	queues   map[QueueID]modelQueue
	// When something that has budgets came to have one, or lost a healthy member since.
	leftOf map[string]Revision
	// Wishes that passed because what they touched was not healthy, placements that borrowed, and evictions for the lender.
	freed, lent, recalled, replaced, rebuilt, respecified, regrouped, outgrown, restopped int
	grew                                                                                  modelGrowth
	// Evictions between queues.
	reclaimed int
	// Capsules that have ended because they were taken off their nodes.
	killed int
	// Those that live, and what is kept of others.
	nominated map[modelNominee]modelNomination
	left      departures // when something of a kind last went away
	recent    []modelID  // proposals without a Place, oldest first
	released  []CapsuleID
	order     uint64
}

type modelNode struct {
	Node
	usage, spec Revision
}

type modelCapsule struct {
	spec      *Spec
	owner     string
	gang      GangID
	role      int
	node      NodeID
	devices   DeviceSet
	note      string
	labels    map[string]string
	since, at Instant // Submit.At, Place.At
	submitted uint64
	specified Revision // when it was submitted
	changed   Revision
	placedAt  Revision
	placedBy  ProposalID
	earlier   []modelID // placements before that one, oldest first
	released  bool
	begun     bool
	ready     bool
	waits     bool
	adopted   bool
	// It has another spec than it was submitted with.
	respecified bool
	protected   time.Duration
	borrows     modelNominee  // from whom; zero: nobody
	remains     *modelRemains // what still runs of an earlier placement
	failures    []modelFailure
}

type modelGang struct {
	*Gang
	changed Revision
}

type modelHold struct {
	Hold
	changed Revision
}

type modelMark struct {
	value string
	at    Revision
}

type modelID struct {
	id ProposalID
	at Revision
}

func newModel(l Limits) *model {
	return &model{
		limits: l.withDefaults(), nodes: map[NodeID]modelNode{}, capsules: map[CapsuleID]modelCapsule{},
		gangs: map[GangID]modelGang{}, holds: map[HoldID]modelHold{}, marks: map[string]modelMark{},
		nominated: map[modelNominee]modelNomination{}, budgets: map[BudgetID]modelBudget{}, leftOf: map[string]Revision{},
		queues: map[QueueID]modelQueue{},
	}
}

func (m *model) clone() *model {
	c := *m
	c.nodes, c.capsules, c.gangs = maps.Clone(m.nodes), maps.Clone(m.capsules), maps.Clone(m.gangs)
	c.holds, c.marks = maps.Clone(m.holds), maps.Clone(m.marks)
	c.nominated = maps.Clone(m.nominated)
	c.budgets, c.leftOf = maps.Clone(m.budgets), maps.Clone(m.leftOf)
	c.queues = maps.Clone(m.queues)
	c.recent, c.released = slices.Clone(m.recent), slices.Clone(m.released)
	return &c
}

// used recounts what is taken of a node. Sums stay below 2^64: a take that passes 2^63 is refused at once.
func (m *model) used(id NodeID) (room [Dimensions]uint64, devices [MaxDevices]int) {
	add := func(r Resources, set DeviceSet, milli int) {
		for d := range r {
			room[d] += uint64(r[d])
		}
		for i := range devices {
			if set.Has(i) {
				devices[i] += milli
			}
		}
	}
	for _, c := range m.capsules {
		if c.node == id {
			add(c.spec.Envelope.Reservation, c.devices, c.spec.Devices.Milli)
		}
	}
	for _, h := range m.holds {
		if h.Node == id {
			add(h.Room, h.Devices, h.Milli)
		}
	}
	return room, devices
}

// on counts capsules and holds of a node.
func (m *model) on(id NodeID) (capsules, holds int) {
	for _, c := range m.capsules {
		capsules += btoi(c.node == id)
	}
	for _, h := range m.holds {
		holds += btoi(h.Node == id)
	}
	return capsules, holds
}

// placed counts a gang's placed members, for each role.
func (m *model) placed(id GangID) []int {
	g, ok := m.gangs[id]
	if !ok {
		return nil
	}
	out := make([]int, len(g.Roles))
	for _, c := range m.capsules {
		if c.gang == id && c.node != "" {
			out[c.role]++
		}
	}
	return out
}

// undone counts a gang's members that have not ended, for each role.
func (m *model) undone(id GangID) []int {
	g := m.gangs[id]
	out := make([]int, len(g.Roles))
	for i, role := range g.Roles {
		for _, member := range role.Members {
			if c, known := m.capsules[member]; known && c.gang == id && !c.released {
				out[i]++
			}
		}
	}
	return out
}

// minimums counts the members of each role that have to be placed at once.
func (m *model) minimums(id GangID) []int {
	out := m.undone(id)
	for i, role := range m.gangs[id].Roles {
		if role.Min > 0 {
			out[i] = min(out[i], role.Min)
		}
	}
	return out
}

// lacking reports whether some role would lack members, or the gang as a whole, if so many of each role were placed.
func (m *model) lacking(id GangID, placed []int) bool {
	for i, least := range m.minimums(id) {
		if placed[i] < least {
			return true
		}
	}
	return sumOf(placed) < min(m.gangs[id].Min, sumOf(m.undone(id)))
}

// priorities are those of the roles with members left; of all roles if there are none.
func (m *model) priorities(id GangID) (out []int32) {
	left := m.undone(id)
	for i, role := range m.gangs[id].Roles {
		if left[i] > 0 || sumOf(left) == 0 {
			out = append(out, role.Spec.Priority)
		}
	}
	return out
}

func sumOf(xs []int) (n int) {
	for _, x := range xs {
		n += x
	}
	return n
}

// ruling is what must come of a proposal: done before, refused with one of kinds, or the next world.
type ruling struct {
	done  Revision
	kinds []error
	next  *model
}

func refusedAs(kinds ...error) ruling { return ruling{kinds: kinds} }

// judge says what must come of the proposal. m does not change.
func (m *model) judge(p Proposal) ruling { return m.rule(p, false) }

// rule does so; of a reduced proposal nobody is spared any more.
func (m *model) rule(p Proposal, reduced bool) ruling {
	if m.malformed(p) {
		return refusedAs(ErrInvalid)
	}
	if at := m.seen(p); at != 0 {
		return ruling{done: at}
	}
	for _, bet := range p.If {
		if no := m.lost(bet); no != nil {
			return m.refusedFor(p.View, no)
		}
	}
	r := &modelRound{was: m, now: m.clone(), p: p, asked: map[NodeID]*modelAsk{}, marks: map[string]bool{},
		wishes: newModelWishes(), arrived: map[CapsuleID]bool{}, adopts: map[GangID]bool{}, grows: map[CapsuleID]Spec{}, facts: map[CapsuleID]bool{}, respecs: map[CapsuleID]bool{}, found: map[CapsuleID]bool{}, dropped: map[QueueID]bool{}, anew: map[CapsuleID]bool{}, asks: map[NodeID][]modelAsker{}, endedOn: map[NodeID]map[HoldID]Hold{}, claimed: map[NodeID]bool{}, begun: map[GangID]bool{}}
	r.now.rev++
	for i, c := range p.Do {
		r.wishes.at = i
		if no := r.execute(c); no != nil {
			return m.refusedFor(p.View, no)
		}
	}
	r.lend()
	if !reduced && len(r.wishes.victims)+len(r.wishes.passed)+len(r.equal) > 0 {
		needless, no := r.needless()
		if no != nil {
			return m.refusedFor(p.View, no)
		}
		if needless = append(needless, r.equal...); len(needless) > 0 {
			switch p.Do = without(p.Do, needless); {
			case len(p.Do) > 0:
			case p.ID.IsZero():
				return ruling{next: m.clone()}
			default:
				p.Do = []Commitment{Submit{Spec: &Spec{}}} // so that the id is known
			}
			return m.rule(p, true)
		}
	}
	if nos := r.unsettled(); len(nos) > 0 {
		return m.refusedFor(p.View, nos...) // which of several is reported is the ledger's choice
	}
	r.finish()
	return ruling{next: r.now}
}

// refusal carries the newest revision of what the refused commitment or bet rests on.
type refusal struct{ newest Revision }

func lostTo(newest Revision) *refusal { return &refusal{newest} }

// kind: infeasible exactly if nothing it rests on is newer than the view.
func (r *refusal) kind(view Revision) error {
	if r.newest > view {
		return ErrConflict
	}
	return ErrInfeasible
}

// refusedFor is a ruling that refuses for one of these reasons.
func (m *model) refusedFor(view Revision, nos ...*refusal) (v ruling) {
	for _, no := range nos {
		switch {
		case no == badKind:
			v.kinds = append(v.kinds, ErrInvalid)
		case no != anyKind:
			v.kinds = append(v.kinds, no.kind(view))
		case view == m.rev:
			v.kinds = append(v.kinds, ErrInfeasible)
		default:
			v.kinds = append(v.kinds, ErrInfeasible, ErrConflict)
		}
	}
	return v
}

// seen finds the proposal's id in the records that it placed or, if it places nothing, among recent ids.
func (m *model) seen(p Proposal) Revision {
	places := 0
	for _, c := range p.Do {
		place, ok := c.(Place)
		if !ok {
			continue
		}
		places++
		c, ok := m.capsules[place.Capsule]
		if !ok || p.ID.IsZero() {
			continue
		}
		if c.placedBy == p.ID {
			return c.placedAt
		}
		for _, e := range c.earlier {
			if e.id == p.ID {
				return e.at
			}
		}
	}
	if places == 0 && !p.ID.IsZero() {
		for _, e := range m.recent {
			if e.id == p.ID {
				return e.at
			}
		}
	}
	return 0
}

// lost judges a bet on the state before the proposal.
func (m *model) lost(bet Precondition) *refusal {
	switch bet := bet.(type) {
	case NodeFreeOf:
		return m.lostFree(bet)
	case NodeAt:
		n, ok := m.nodes[bet.Node]
		switch {
		case !ok:
			return lostTo(m.left.Nodes)
		case bet.Usage != 0 && bet.Usage != n.usage:
			return lostTo(n.usage)
		case bet.Specification != 0 && bet.Specification != n.spec:
			return lostTo(n.spec)
		}
	case GangUnplaced:
		if _, ok := m.gangs[bet.Gang]; !ok {
			return lostTo(m.left.Gangs)
		}
		if sumOf(m.placed(bet.Gang)) > 0 {
			return lostTo(m.gangs[bet.Gang].changed)
		}
	case GroupIn:
		for _, c := range m.capsules {
			if c.node != "" && slices.Contains(modelGroupsOf(c.spec), bet.Group) && m.nodes[c.node].Labels[bet.Level] == bet.Domain {
				return nil
			}
		}
		return lostTo(m.left.Groups)
	case MarkAt:
		if at := m.marks[bet.Key].at; at != bet.Revision {
			return lostTo(max(at, m.left.Marks))
		}
	}
	return nil
}

func (m *model) lostFree(bet NodeFreeOf) *refusal {
	n, ok := m.nodes[bet.Node]
	if !ok {
		return lostTo(m.left.Nodes)
	}
	used, _ := m.used(bet.Node)
	for d, want := range bet.AtLeast {
		if want > 0 && used[d]+uint64(want) > uint64(n.Capacity[d]) {
			return lostTo(max(n.usage, n.spec))
		}
	}
	return nil
}

// modelRound executes one proposal on a copy of the world.
type modelRound struct {
	was, now *model
	p        Proposal
	asked    map[NodeID]*modelAsk
	marks    map[string]bool // touched
	emptied  map[GangID]bool // gangs of which nothing was placed at some point
	asks     map[NodeID][]modelAsker
	endedOn  map[NodeID]map[HoldID]Hold // holds that there were before
	claimed  map[NodeID]bool            // nodes nominated by the proposal
	shared   bool                       // it nominates, or lowers a capacity
	wishes   modelWishes
	arrived  map[CapsuleID]bool // placed by the proposal
	anew     map[CapsuleID]bool // submitted by the proposal, under the id of one that has ended
	protects map[CapsuleID]time.Duration
	adopts   map[GangID]bool // of which members were found running
	grows    map[CapsuleID]Spec
	begun    map[GangID]bool    // submitted by the proposal, all of it
	equal    []int              // descriptions that nodes have already
	ends     map[CapsuleID]bool // taken off their nodes, and over by that
	dropped  map[QueueID]bool   // queues that it ends
	facts    map[CapsuleID]bool // their new specs are facts
	respecs  map[CapsuleID]bool // they have other specs
	found    map[CapsuleID]bool // they were found running
}

// mayEnd notes that a capsule is over because it is taken off its node, if it is.
func (r *modelRound) mayEnd(id CapsuleID, c modelCapsule) {
	if !c.spec.Ends || !c.begun && r.now.nodes[c.node].Confirms {
		return
	}
	if r.ends == nil {
		r.ends = map[CapsuleID]bool{}
	}
	r.ends[id] = true
	r.now.released = append(slices.Clip(r.now.released), id) // its place among those that end; finish leaves out what has not ended
}

// modelAsk is what the proposal newly puts on a node.
type modelAsk struct {
	room    [Dimensions]uint64
	devices DeviceSet
	spec    Revision // the newest of what asks
}

func (r *modelRound) execute(c Commitment) *refusal {
	switch c := c.(type) {
	case PutNode:
		return r.putNode(c.Node)
	case RemoveNode:
		if c.Gone {
			return r.vanish(c.Node)
		}
		return r.removeNode(c.Node)
	case Submit:
		return r.submit(c)
	case Place:
		return r.place(c)
	case Release:
		if c.Hold != "" {
			return r.endHold(c.Hold)
		}
		return r.release(c)
	case Evict:
		return r.evict(c)
	case Confirm:
		return r.confirm(c)
	case Adopt:
		return r.adopt(c)
	case Respec:
		return r.respec(c)
	case Protect:
		return r.protect(c)
	case Hold:
		return r.hold(c)
	case Nominate:
		return r.nominate(c)
	case Assign:
		return r.assign(c)
	case Mark:
		r.marks[c.Key] = true
		r.now.marks[c.Key] = modelMark{c.Value, r.now.rev}
		if c.Value == "" {
			delete(r.now.marks, c.Key)
		}
	case PutBudget:
		return r.putBudget(c.Budget)
	case RemoveBudget:
		return r.removeBudget(c.Budget)
	case PutQueue:
		return r.putQueue(c.Queue)
	case RemoveQueue:
		return r.removeQueue(c.Queue)
	}
	return nil
}

func (r *modelRound) putNode(n Node) *refusal {
	known, ok := r.now.nodes[n.ID]
	if ok && known.State == Lost && n.State != Lost {
		return lostTo(r.was.nodes[n.ID].spec)
	}
	if ok && reflect.DeepEqual(known.Clone(), n.Clone()) {
		r.equal = append(r.equal, r.wishes.at)
		return nil
	}
	if n.State == Ready {
		r.wishes.readied[n.ID] = true
	}
	if !ok {
		known.usage = r.now.rev
		delete(r.asked, n.ID)
		delete(r.asks, n.ID)
		delete(r.endedOn, n.ID)
		delete(r.claimed, n.ID)
	}
	if n.State == Lost {
		r.now.endRemains(n.ID)
	}
	for d := range n.Capacity {
		r.shared = r.shared || ok && n.Capacity[d] < known.Capacity[d]
	}
	r.shared = r.shared || ok && n.Devices.Count < known.Devices.Count
	r.now.nodes[n.ID] = modelNode{Node: n, usage: known.usage, spec: r.now.rev}
	return nil
}

func (r *modelRound) removeNode(id NodeID) *refusal {
	if _, ok := r.now.nodes[id]; !ok {
		return lostTo(r.was.left.Nodes)
	}
	if capsules, holds := r.now.on(id); capsules+holds > 0 {
		return lostTo(r.was.nodes[id].newest())
	}
	if len(r.now.remainsOn(id)) > 0 {
		return lostTo(r.was.nodes[id].newest())
	}
	if len(r.now.claims(id)) > 0 {
		return lostTo(max(r.was.nodes[id].newest(), r.was.left.Nominations))
	}
	delete(r.now.nodes, id)
	r.shared = true
	return nil
}

// vanish removes a node that has gone with all that is on it.
func (r *modelRound) vanish(id NodeID) *refusal {
	n, ok := r.now.nodes[id]
	view := r.p.View
	defer func() { r.p.View = view }()
	r.p.View = 0 // also what the proposer does not know of is lost
	if capsules, _ := r.now.on(id); ok && n.State != Lost && capsules+len(r.now.remainsOn(id)) > 0 {
		n := n.Clone()
		n.State = Lost
		if no := r.putNode(n); no != nil {
			return no
		}
	}
	for _, c := range slices.Sorted(maps.Keys(r.now.capsules)) {
		if ok && r.now.capsules[c].node == id {
			if no := r.release(Release{Capsule: c, From: id}); no != nil {
				return no
			}
		}
	}
	for _, h := range slices.Sorted(maps.Keys(r.now.holds)) {
		if ok && r.now.holds[h].Node == id {
			if no := r.endHold(h); no != nil {
				return no
			}
		}
	}
	for who := range r.now.claims(id) {
		if no := r.nominate(Nominate{Capsule: who.capsule, Gang: who.gang}); no != nil {
			return no
		}
	}
	return r.removeNode(id)
}

func (n modelNode) newest() Revision { return max(n.usage, n.spec) }

func (r *modelRound) submit(c Submit) *refusal {
	if c.Gang == nil {
		return r.submitAll(c, c.IDs, modelCapsule{spec: c.Spec, owner: c.Owner, since: c.At, labels: c.Labels})
	}
	if c.Join {
		return r.join(c)
	}
	if old, ok := r.now.gangs[c.Gang.ID]; ok {
		var all []CapsuleID
		for _, role := range c.Gang.Roles {
			all = append(all, role.Members...)
		}
		for _, role := range old.Roles {
			for _, id := range role.Members {
				if k, kept := r.now.capsules[id]; kept && k.gang == c.Gang.ID && (!k.released || !slices.Contains(all, id)) {
					return lostTo(max(r.was.gangs[c.Gang.ID].changed, r.was.capsules[id].changed))
				}
			}
		}
		r.now.unnominate(modelNominee{gang: c.Gang.ID}, false)
		delete(r.wishes.gangs, c.Gang.ID)
		delete(r.wishes.drained, c.Gang.ID)
		delete(r.wishes.displaced, c.Gang.ID)
		delete(r.adopts, c.Gang.ID)
	}
	r.now.gangs[c.Gang.ID] = modelGang{c.Gang, r.now.rev}
	for i, role := range c.Gang.Roles {
		like := modelCapsule{spec: role.Spec, owner: c.Owner, since: c.At, labels: c.Labels, gang: c.Gang.ID, role: i}
		if no := r.submitAll(c, role.Members, like); no != nil {
			return no
		}
	}
	r.begun[c.Gang.ID] = true
	return nil
}

func (r *modelRound) submitAll(c Submit, ids []CapsuleID, like modelCapsule) *refusal {
	for _, id := range ids {
		like := like
		if own := c.LabelsOf[id]; len(own) > 0 {
			like.labels = maps.Clone(c.Labels)
			if like.labels == nil {
				like.labels = map[string]string{}
			}
			maps.Copy(like.labels, own)
		}
		if old, ok := r.now.capsules[id]; ok {
			if !old.released {
				return lostTo(r.was.capsules[id].changed)
			}
			if no := r.unseen(id); no != nil {
				return no
			}
			old.remember(r.now.limits.PlacementIDs)
			like.earlier, like.remains = old.earlier, old.remains
			r.anew[id] = true
			delete(r.arrived, id)
			delete(r.ends, id)
			delete(r.wishes.placed, id)
			delete(r.protects, id)
			if r.was.capsules[id].released {
				r.now.released = slices.DeleteFunc(slices.Clone(r.now.released), func(o CapsuleID) bool { return o == id })
			}
		}
		r.now.order = max(r.now.order+1, uint64(r.now.rev)<<20)
		r.respecs[id] = true
		delete(r.found, id)
		like.submitted, like.specified, like.changed = r.now.order, r.now.rev, r.now.rev
		r.now.capsules[id] = like
	}
	return nil
}

// unseen refuses what names a capsule that was submitted after the view, but by the proposal itself.
func (r *modelRound) unseen(id CapsuleID) *refusal {
	if was := r.was.capsules[id]; r.p.View != 0 && !r.anew[id] && was.specified > r.p.View {
		return lostTo(was.specified)
	}
	return nil
}

func (r *modelRound) place(p Place) *refusal {
	c, ok := r.now.capsules[p.Capsule]
	if !ok {
		return lostTo(r.was.left.Capsules)
	}
	if no := r.unseen(p.Capsule); no != nil {
		return no
	}
	n, ok := r.now.nodes[p.Node]
	if !ok {
		return lostTo(r.was.left.Nodes)
	}
	if c.released || c.node != "" {
		return lostTo(r.was.capsules[p.Capsule].changed)
	}
	if r.wishes.evicted[p.Capsule] || r.ends[p.Capsule] {
		return lostTo(0)
	}
	specified := r.was.specAt(p.Capsule)
	if no := r.suits(c.spec, specified, n, p.Devices); no != nil {
		return no
	}
	if no := r.take(p.Node, c.spec.Envelope.Reservation, p.Devices, specified); no != nil {
		return no
	}
	r.ask(p.Node, r.asker(p.Capsule, c.spec, c.gang, p.Devices))
	r.now.unnominate(modelNominee{capsule: p.Capsule}, false)
	r.now.unnominate(modelNominee{gang: c.gang}, false)
	c.remember(r.now.limits.PlacementIDs)
	r.arrived[p.Capsule] = true
	delete(r.found, p.Capsule)
	c.node, c.devices, c.note, c.at = p.Node, p.Devices, p.Note, p.At
	c.changed, c.placedAt, c.placedBy = r.now.rev, r.now.rev, r.p.ID
	r.now.capsules[p.Capsule] = c
	r.wishes.placed[p.Capsule] = p.After
	r.now.touchGang(c.gang)
	return nil
}

// remember moves the last placement into the past: at least limit are kept, at most twice as many.
func (c *modelCapsule) remember(limit int) {
	if c.placedBy.IsZero() {
		return
	}
	c.earlier = append(slices.Clip(c.earlier), modelID{c.placedBy, c.placedAt})
	if len(c.earlier) > 2*limit {
		c.earlier = c.earlier[len(c.earlier)-limit:]
	}
}

func (m *model) touchGang(id GangID) {
	if g, ok := m.gangs[id]; ok {
		g.changed = m.rev
		m.gangs[id] = g
	}
}

// suits checks everything about a placement but room.
func (r *modelRound) suits(spec *Spec, specified Revision, n modelNode, set DeviceSet) *refusal {
	rests := lostTo(max(r.was.nodes[n.ID].spec, specified))
	if !n.Schedulable() {
		return lostTo(r.was.nodes[n.ID].spec)
	}
	for _, p := range spec.Require {
		if !modelMeets(n.Node, p) {
			return rests
		}
	}
	if modelKeptOff(n.Node, spec, "NoSchedule", "NoExecute") {
		return rests
	}
	want := spec.Devices
	if set.Len() != want.Count {
		return lostTo(specified)
	}
	if want.Count > 0 && len(want.Models) > 0 && !slices.Contains(want.Models, n.Devices.Model) {
		return rests
	}
	return r.there(n, set)
}

// there checks that all instances exist and are healthy.
func (r *modelRound) there(n modelNode, set DeviceSet) *refusal {
	for i := range MaxDevices {
		if set.Has(i) && (i >= n.Devices.Count || n.Devices.Unhealthy.Has(i)) {
			return lostTo(r.was.nodes[n.ID].spec)
		}
	}
	return nil
}

// take notes what is asked of the node. Only a sum that cannot be represented is refused before the end.
func (r *modelRound) take(id NodeID, room Resources, set DeviceSet, spec Revision) *refusal {
	ask := r.asked[id]
	if ask == nil {
		ask = &modelAsk{}
		r.asked[id] = ask
	}
	used, _ := r.now.used(id)
	ask.devices |= set
	ask.spec = max(ask.spec, spec)
	for d, want := range room {
		ask.room[d] += uint64(want)
		if ask.room[d] > math.MaxInt64 || used[d]+uint64(want) > math.MaxInt64 {
			return lostTo(max(r.was.nodes[id].newest(), ask.spec))
		}
	}
	r.now.touchNode(id)
	return nil
}

func (m *model) touchNode(id NodeID) {
	n := m.nodes[id]
	n.usage = m.rev
	m.nodes[id] = n
}

func (r *modelRound) release(p Release) *refusal {
	c, ok := r.now.capsules[p.Capsule]
	switch {
	case !ok:
		return lostTo(r.was.left.Capsules)
	case r.unseen(p.Capsule) != nil:
		return r.unseen(p.Capsule)
	case r.wishes.evicted[p.Capsule] && !c.released:
		return lostTo(0)
	case c.released, p.From != "" && p.From != c.node, c.node == "" && (!p.Final || p.Stopped):
		return lostTo(r.was.capsules[p.Capsule].changed)
	}
	switch {
	case p.Stopped:
		c.fails(p.At, r.now.rev, true)
		if most := c.spec.Attempts; most > 0 && c.countFailures().Attempts >= most {
			p.Final = true
		}
	case p.Final:
	case r.waitsToBegin(p.Capsule, c):
		c.fails(p.At, r.now.rev, false)
	default:
		if no := r.mayReturn(p.Capsule, c); no != nil {
			return no
		}
		if !r.arrived[p.Capsule] {
			r.mayEnd(p.Capsule, c)
		}
	}
	if c.node != "" {
		r.now.touchNode(c.node)
		r.now.touchGang(c.gang)
	}
	c.begun = c.begun && !p.Stopped
	r.leave(p.Capsule, &c)
	c.node, c.devices, c.note, c.changed, c.released = "", 0, "", r.now.rev, p.Final
	r.now.capsules[p.Capsule] = c
	if c.gang != "" && sumOf(r.now.placed(c.gang)) == 0 {
		if r.emptied == nil {
			r.emptied = map[GangID]bool{}
		}
		r.emptied[c.gang] = true
	}
	if p.Final {
		r.now.touchGang(c.gang)
		r.now.unnominate(modelNominee{capsule: p.Capsule}, false)
		r.now.unnominate(modelNominee{gang: c.gang}, true)
		if !slices.Contains(r.now.released, p.Capsule) {
			r.now.released = append(slices.Clip(r.now.released), p.Capsule)
		}
	}
	return nil
}

func (r *modelRound) hold(h Hold) *refusal {
	if _, ok := r.now.holds[h.ID]; ok {
		return lostTo(r.was.holds[h.ID].changed)
	}
	n, ok := r.now.nodes[h.Node]
	if !ok {
		return lostTo(r.was.left.Nodes)
	}
	if !n.Schedulable() {
		return lostTo(r.was.nodes[h.Node].spec)
	}
	if no := r.there(n, h.Devices); no != nil {
		return no
	}
	if no := r.take(h.Node, h.Room, h.Devices, 0); no != nil {
		return no
	}
	r.ask(h.Node, modelAsker{hold: true, room: h.Room, devices: h.Devices, milli: h.Milli})
	r.now.holds[h.ID] = modelHold{h, r.now.rev}
	return nil
}

func (r *modelRound) endHold(id HoldID) *refusal {
	h, ok := r.now.holds[id]
	if !ok {
		return lostTo(r.was.left.Holds)
	}
	r.now.touchNode(h.Node)
	if was, ok := r.was.holds[id]; ok {
		if r.endedOn[was.Node] == nil {
			r.endedOn[was.Node] = map[HoldID]Hold{}
		}
		r.endedOn[was.Node][id] = was.Hold
	}
	delete(r.now.holds, id)
	return nil
}

func (r *modelRound) assign(a Assign) *refusal {
	c, ok := r.now.capsules[a.Capsule]
	if !ok {
		return lostTo(r.was.left.Capsules)
	}
	if no := r.unseen(a.Capsule); no != nil {
		return no
	}
	if c.released || c.owner != a.From {
		return lostTo(r.was.capsules[a.Capsule].changed)
	}
	c.owner, c.changed = a.Owner, r.now.rev
	r.now.capsules[a.Capsule] = c
	return nil
}

// unsettled judges the sums: nothing asked for may end above a capacity, no gang may begin incomplete.
func (r *modelRound) unsettled() (out []*refusal) {
	for id, ask := range r.asked {
		if n, ok := r.now.nodes[id]; ok && r.now.over(n, ask) {
			out = append(out, lostTo(max(r.was.nodes[id].newest(), ask.spec)))
		}
	}
	for id := range r.now.gangs {
		placed := r.now.placed(id)
		if sumOf(placed) == 0 || r.adopts[id] || sumOf(r.was.placed(id)) > 0 && !r.emptied[id] {
			continue
		}
		if r.now.lacking(id, placed) {
			out = append(out, lostTo(r.was.gangs[id].changed))
		}
	}
	return slices.Concat(out, r.overstepped(), r.unkind(), r.overspent(), r.impatient(), r.crowded(), r.uneven(), r.lonely(), r.insolent(), r.bloated(), r.glutted(), r.orphaned(), r.overdrawn(), r.unjust())
}

func (m *model) over(n modelNode, ask *modelAsk) bool {
	used, devices := m.used(n.ID)
	for d := range used {
		if ask.room[d] > 0 && used[d] > uint64(n.Capacity[d]) {
			return true
		}
	}
	for i, milli := range devices {
		if ask.devices.Has(i) && (milli > 1000 || milli > 0 && (i >= n.Devices.Count || n.Devices.Unhealthy.Has(i))) {
			return true
		}
	}
	return false
}

// finish keeps the books: departures, recent ids, the window of released records.
func (r *modelRound) finish() {
	m := r.now
	for id := range r.ends {
		if c := m.capsules[id]; !c.released {
			c.released = true
			m.capsules[id] = c
			m.touchGang(c.gang)
			m.unnominate(modelNominee{capsule: id}, false)
			m.unnominate(modelNominee{gang: c.gang}, true)
			m.killed++
		}
	}
	for id, lasts := range r.protects {
		if c := m.capsules[id]; c.node != "" {
			c.protected = lasts
			m.capsules[id] = c
		}
	}
	for id, n := range r.was.nodes {
		if now, ok := m.nodes[id]; !ok {
			m.left.Nodes = m.rev
		} else if now.spec != n.spec {
			m.left.Groups = m.rev
		}
	}
	for id, c := range r.was.capsules {
		if c.node != "" && len(modelGroupsOf(c.spec)) > 0 && (m.capsules[id].node != c.node || r.anew[id] || regroups(c.spec, m.capsules[id].spec)) {
			m.left.Groups = m.rev
		}
	}
	for id := range r.was.holds {
		if _, ok := m.holds[id]; !ok {
			m.left.Holds = m.rev
		}
	}
	for key := range r.marks {
		if _, ok := m.marks[key]; !ok {
			m.left.Marks = m.rev
		}
	}
	if r.shared {
		m.left.Nominations = m.rev
	}
	for id, c := range r.was.capsules {
		if c.remains != nil && m.capsules[id].remains != c.remains {
			m.left.Remains = m.rev
		}
	}
	m.released = slices.DeleteFunc(slices.Clone(m.released), func(id CapsuleID) bool { return !m.capsules[id].released })
	for id := range r.anew {
		if gang := r.was.capsules[id].gang; gang != "" && !m.anyOf(gang) {
			delete(m.gangs, gang)
			delete(m.nominated, modelNominee{gang: gang})
			m.left.Gangs = m.rev
		}
	}
	for id := range r.was.queues {
		if _, ok := m.queues[id]; !ok {
			m.left.Queues = m.rev
		}
	}
	r.dateBudgets()
	r.rememberID()
	m.dropReleased()
}

func (r *modelRound) rememberID() {
	for _, c := range r.p.Do {
		if _, ok := c.(Place); ok {
			return
		}
	}
	if !r.p.ID.IsZero() {
		r.now.recent = append(r.now.recent, modelID{r.p.ID, r.now.rev})
		r.now.recent = r.now.recent[max(0, len(r.now.recent)-r.now.limits.ProposalIDs):]
	}
}

func (m *model) dropReleased() {
	beyond := max(0, len(m.released)-m.limits.Terminal)
	old := m.released[:beyond]
	m.released = slices.Clone(m.released[beyond:])
	for i := len(old) - 1; i >= 0; i-- { // an id is not free while something runs under it
		if m.capsules[old[i]].remains != nil {
			m.released = slices.Insert(m.released, 0, old[i])
		}
	}
	for _, id := range old {
		if m.capsules[id].remains != nil {
			continue
		}
		c := m.capsules[id]
		m.left.Capsules = max(m.left.Capsules, c.changed)
		delete(m.capsules, id)
		if c.gang != "" && !m.anyOf(c.gang) {
			delete(m.gangs, c.gang)
			delete(m.nominated, modelNominee{gang: c.gang})
			m.left.Gangs = m.rev
		}
	}
}

// anyOf reports whether a record of a member of the gang is kept.
func (m *model) anyOf(id GangID) bool {
	for _, c := range m.capsules {
		if c.gang == id {
			return true
		}
	}
	return false
}

// malformed knows the faults that the generator makes.
func (m *model) malformed(p Proposal) bool {
	seen := map[CapsuleID]bool{}
	for _, c := range p.Do {
		if m.badCommitment(c, seen) {
			return true
		}
	}
	if mixesStopped(p.Do) || protectsElse(p.Do) || respecsElse(p.Do) {
		return true
	}
	for _, bet := range p.If {
		if free, ok := bet.(NodeFreeOf); ok && negative(free.AtLeast) || bet == nil {
			return true
		}
	}
	return len(p.Do) == 0
}

func negative(r Resources) bool { return slices.Min(r[:]) < 0 }

func (m *model) badCommitment(c Commitment, seen map[CapsuleID]bool) bool {
	switch c := c.(type) {
	case nil, *Place:
		return true
	case PutNode:
		return c.Node.ID == "" || negative(c.Node.Capacity) || slices.ContainsFunc(c.Node.Taints, func(t Taint) bool { return t.Effect == "Never" })
	case Place:
		return c.Capsule == "" || c.Node == "" || c.At < 0
	case Release:
		return c.At < 0 || c.At != 0 && (c.Final && !c.Stopped || c.Hold != "")
	case Respec:
		return c.Capsule == "" || c.Spec == nil || badSpec(c.Spec) || c.Stopping && (c.Since == 0 || c.Applied)
	case Adopt:
		return c.Capsule == "" || c.Node == "" || c.At < 0 || c.Spec != nil && badSpec(c.Spec)
	case Evict:
		return c.Capsule == "" || c.From == "" || c.Since == 0 || c.For != "" && c.ForGang != ""
	case Confirm:
		said := 0
		for _, is := range []bool{c.Begun, c.Ready, c.NotReady, c.Stopped} {
			said += btoi(is)
		}
		return c.Capsule == "" || c.Since == 0 || said != 1
	case Protect:
		return c.Capsule == "" || (c.For == 0) == (c.Since == 0) || c.For < 0 || c.For > 10*time.Minute
	case PutBudget:
		return badBudget(c.Budget)
	case RemoveBudget:
		return c.Budget == ""
	case PutQueue:
		return badQueue(c.Queue)
	case RemoveQueue:
		return c.Queue == ""
	case Nominate:
		return len(c.Parts) == 0 && c.Lends != 0
	case Hold:
		return negative(c.Room) || c.Ends.IsZero() || c.Room == Resources{} && c.Devices == 0
	case Submit:
		if _, nameless := c.Labels[""]; nameless || c.At < 0 {
			return true
		}
		if badLabelsOf(c) || c.Join && c.Gang == nil || c.Gang != nil && len(membersIn(c)) > m.limits.GangMembers {
			return true
		}
		if c.Gang == nil {
			return badSpec(c.Spec) || submittedTwice(c.IDs, seen)
		}
		for _, r := range c.Gang.Roles {
			if badSpec(r.Spec) || r.Spec.Backfills || submittedTwice(r.Members, seen) {
				return true
			}
		}
	}
	return false
}

func badSpec(s *Spec) bool {
	for _, p := range s.Prefer {
		if math.IsNaN(p.Weight) {
			return true
		}
	}
	return negative(s.Envelope.Reservation) || s.Backfills && s.RunsAtMost == 0 || slices.ContainsFunc(s.Tolerate, func(o Toleration) bool { return o == Toleration{Op: "Equal"} || o == Toleration{Op: "Exists", For: 1} })
}

func submittedTwice(ids []CapsuleID, seen map[CapsuleID]bool) bool {
	for _, id := range ids {
		if seen[id] {
			return true
		}
		seen[id] = true
	}
	return false
}

// describe lists the model's world in the words of worldOf.
func (m *model) describe() []string {
	out := []string{fmt.Sprintf("revision %d, %d nodes, %d capsules", m.rev, len(m.nodes), len(m.capsules))}
	for _, id := range slices.Sorted(maps.Keys(m.nodes)) {
		n := m.nodes[id]
		used, devices := m.used(id)
		capsules, holds := m.on(id)
		out = append(out, fmt.Sprintf("node %v used %v devices %v capsules %d holds %d usage %d spec %d",
			n.Node, used, devices, capsules, holds, n.usage, n.spec))
	}
	for _, id := range slices.Sorted(maps.Keys(m.capsules)) {
		c := m.capsules[id]
		out = append(out, fmt.Sprintf("capsule %s %s owner %q gang %q on %q %b %q labels %v since %d at %d submitted %d changed %d placed %d by %s released %v begun %v ready %v waits %v adopted %v respecified %v protected %v borrows %v remains %s failures %v",
			id, shape(c.spec), c.owner, c.gang, c.node, c.devices, c.note, c.labels, c.since, c.at, c.submitted, c.changed, c.placedAt, c.placedBy, c.released, c.begun, c.ready, c.waits, c.adopted, c.respecified, c.protected, c.borrows, c.remains, c.countFailures()))
	}
	for _, id := range slices.Sorted(maps.Keys(m.gangs)) {
		left := m.undone(id)
		for i, role := range m.gangs[id].Roles {
			left[i] = len(role.Members) - left[i]
		}
		out = append(out, fmt.Sprintf("gang %s at least %d: %s placed %v done %v changed %d broken %v", id, m.gangs[id].Min, rolesOf(m.gangs[id].Gang), m.placed(id), left, m.gangs[id].changed, m.broken(id)))
	}
	for _, id := range slices.Sorted(maps.Keys(m.holds)) {
		h := m.holds[id]
		out = append(out, fmt.Sprintf("hold %s on %s %d %b %d ends %v", id, h.Node, [Dimensions]int64(h.Room), h.Devices, h.Milli, h.Ends))
	}
	for _, key := range slices.Sorted(maps.Keys(m.marks)) {
		out = append(out, fmt.Sprintf("mark %s=%s at %d", key, m.marks[key].value, m.marks[key].at))
	}
	out = append(out, "pending "+strings.Join(m.pending(), " "), fmt.Sprintf("left %v", m.left), fmt.Sprintf("overcommitted %v", m.overcommitted()))
	return slices.Concat(out, m.groups(), m.describeNominations(), m.describeBudgets(), m.describeQueues())
}

// modelGroupsOf lists the groups of a spec, each once.
// regroups reports whether a capsule counts otherwise among groups with another spec.
func regroups(a, b *Spec) bool {
	a, b = a.clone(), b.clone()
	return a.Group != b.Group || !slices.Equal(a.Groups, b.Groups) || a.Near != b.Near
}

func modelGroupsOf(s *Spec) (out []string) {
	for _, group := range append([]string{s.Group}, s.Groups...) {
		if group != "" && !slices.Contains(out, group) {
			out = append(out, group)
		}
	}
	slices.Sort(out)
	return out
}

func shape(s *Spec) string {
	return fmt.Sprintf("%s/%d/%d×%d/%v/%s/%d", s.Module, [Dimensions]int64(s.Envelope.Reservation), s.Devices.Count, s.Devices.Milli, modelGroupsOf(s), modelNearsOf(s), len(s.Require))
}

func (m *model) pending() []string {
	var ids []string
	for id, c := range m.capsules {
		if c.node == "" && !c.released {
			ids = append(ids, string(id))
		}
	}
	slices.SortFunc(ids, func(a, b string) int {
		x, y := m.capsules[CapsuleID(a)], m.capsules[CapsuleID(b)]
		return cmp.Or(cmp.Compare(y.spec.Priority, x.spec.Priority), cmp.Compare(x.submitted, y.submitted))
	})
	return ids
}

func (m *model) groups() []string {
	count := map[string]int{}
	for _, c := range m.capsules {
		if c.node != "" {
			for _, group := range modelGroupsOf(c.spec) {
				count[fmt.Sprintf("group %s on %s", group, c.node)]++
			}
		}
		for _, group := range modelGroups {
			if c.node == "" && !c.released && (slices.Contains(modelGroupsOf(c.spec), group) || slices.ContainsFunc(modelNearsOf(c.spec), func(r Near) bool { return r.Group == group })) {
				count[fmt.Sprintf("group %s waits, %s", group, shape(c.spec))]++
			}
		}
	}
	var out []string
	for k, n := range count {
		out = append(out, fmt.Sprintf("%s: %d", k, n))
	}
	return slices.Sorted(slices.Values(out))
}

// worldOf lists a state through its public methods, in the words of model.describe.
func worldOf(s *State) []string {
	out := []string{fmt.Sprintf("revision %d, %d nodes, %d capsules", s.Revision(), s.NodeCount(), s.CapsuleCount())}
	for n := range s.Nodes() {
		out = append(out, fmt.Sprintf("node %v used %d devices %v capsules %d holds %d usage %d spec %d",
			*n.Node, [Dimensions]int64(n.Used()), n.deviceUse(), n.Capsules, n.holds, n.Usage, n.Specification))
	}
	for _, c := range slices.SortedFunc(s.Capsules(), func(a, b *Capsule) int { return cmp.Compare(a.ID, b.ID) }) {
		out = append(out, fmt.Sprintf("capsule %s %s owner %q gang %q on %q %b %q labels %v since %d at %d submitted %d changed %d placed %d by %s released %v begun %v ready %v waits %v adopted %v respecified %v protected %v borrows %v remains %s failures %v",
			c.ID, shape(c.Spec), c.Owner(), c.Gang(), c.Node, c.Devices, c.Note(), c.Labels(), c.SubmitTime(), c.PlaceTime, c.Submitted, c.Changed, c.PlacedAt, c.PlacedBy, c.Released(), c.Begun, c.Ready, c.Waits, c.Adopted, c.Respecified, s.Protected(c.ID), borrowsOf(c), c.Remains(), s.Failures(c.ID)))
	}
	for g := range s.Gangs() {
		out = append(out, fmt.Sprintf("gang %s at least %d: %s placed %v done %v changed %d broken %v", g.Gang.ID, g.Gang.Min, rolesOf(g.Gang), g.Placed, g.Done, g.Changed, g.Broken()))
	}
	for h := range s.Holds() {
		out = append(out, fmt.Sprintf("hold %s on %s %d %b %d ends %v", h.ID, h.Node, [Dimensions]int64(h.Room), h.Devices, h.Milli, h.Ends))
	}
	for key, value := range s.Marks("") {
		_, at := s.Mark(key)
		out = append(out, fmt.Sprintf("mark %s=%s at %d", key, value, at))
	}
	var pending []string
	for _, c := range s.Pending() {
		pending = append(pending, string(c.ID))
	}
	var over []NodeID
	for n := range s.Overcommitted() {
		over = append(over, n.Node.ID)
	}
	out = append(out, "pending "+strings.Join(pending, " "), fmt.Sprintf("left %v", s.left), fmt.Sprintf("overcommitted %v", over))
	return slices.Concat(out, groupsOf(s), nominationsOf(s), budgetsIn(s), queuesOf(s))
}

func groupsOf(s *State) []string {
	var out []string
	for _, group := range modelGroups {
		for n, count := range s.GroupNodes(group) {
			out = append(out, fmt.Sprintf("group %s on %s: %d", group, n.Node.ID, count))
		}
		waits := map[string]int{} // specs of one shape may differ in what they require
		for spec, count := range s.GroupPending(group) {
			waits[fmt.Sprintf("group %s waits, %s", group, shape(spec))] += count
		}
		for what, count := range waits {
			out = append(out, fmt.Sprintf("%s: %d", what, count))
		}
	}
	return slices.Sorted(slices.Values(out))
}

// diffLines returns what is in one list and not at the same place in the other.
func diffLines(got, want []string) string {
	var b strings.Builder
	for i := range max(len(got), len(want)) {
		g, w := "nothing", "nothing"
		if i < len(got) {
			g = got[i]
		}
		if i < len(want) {
			w = want[i]
		}
		if g != w {
			fmt.Fprintf(&b, "  got  %s\n  want %s\n", g, w)
		}
	}
	return b.String()
}
