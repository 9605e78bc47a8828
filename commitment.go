package orbit

import "time"

// Commitment is one change of the world. The set is closed: [PutNode], [RemoveNode], [Submit], [Place], [Release],
// [Evict], [Confirm], [Adopt], [Respec], [Hold], [Nominate], [Assign], [Mark], [PutBudget], [RemoveBudget], [Protect],
// [PutQueue], [RemoveQueue];
// as values, not pointers.
type Commitment interface {
	// check checks the form of the commitment, and returns the form in which it is kept; nil: as it is.
	check(v *validator) Commitment
	// execute does the commitment on a write-set, and returns the node that it touches, if any.
	execute(t *tx) (NodeID, error)
	// subject returns the capsule that the commitment is about; empty: none, or several.
	subject() CapsuleID
	// effect returns what the commitment may change for what is planned elsewhere.
	effect() effect
}

// isCommitment reports whether c is one of orbit's commitments, as a value. A pointer is none, because its owner could
// change it after the ledger has accepted it; nor is a type that embeds a commitment.
func isCommitment(c Commitment) bool {
	switch c.(type) {
	case PutNode, RemoveNode, Submit, Place, Release, Evict, Confirm, Adopt, Respec, Hold, Nominate, Assign, Mark, PutBudget, RemoveBudget, Protect, PutQueue, RemoveQueue:
		return true
	}
	return false
}

// PutNode lets a node join, or replaces the whole description of one that has joined, its State and Taints too. To change one thing, change
// a [Node.Clone] of what [State.Node] has and put that with a [NodeAt] on its Specification: else a cordon of an operator may be lost.
// Capacity may shrink below what is used; then nothing new is admitted. A node that is Lost stays Lost. A description that
// the node has already changes nothing: the commit leaves it out. If nothing else is left, a proposal without an id makes
// no revision; one with an id makes a revision with an empty [Submit], so that the id is remembered.
type PutNode struct {
	// Node is the description of the node.
	Node Node `json:"node"`
}

// RemoveNode lets a node leave. Without Gone it is refused while capsules, [Remains] or holds are on the node, and while it
// is nominated. The engine of a nominee ends its nomination on a node that is not ready; where that engine does not run,
// end it in the proposal that removes the node (a [Nominate] without Parts).
type RemoveNode struct {
	// Node is the node to remove.
	Node NodeID `json:"node"`
	// Gone says that the machine has gone with all that was on it. The ledger puts the node as Lost and releases its
	// capsules: they are lost, so neither budgets nor protections nor the minimums of gangs are judged, and each is pending
	// again or has ended ([Spec.Ends]). It ends the remains and the holds there, and the nominations of room there. The
	// history has all of that as commitments of their own, before the RemoveNode. A node with very many capsules makes a
	// large commit; to divide it, put the node as Lost and release the capsules in batches first.
	Gone bool `json:"gone,omitempty"`
}

// Submit adds pending capsules: either one for each of IDs, all of one Spec, or all members of a Gang. With neither it
// adds none, which is no error. The id of a capsule that has been released for good may be used again at once, also in
// the proposal that releases it. The new capsule takes over two things from the former one: what still runs of it
// ([Remains]), so that db-0 does not run twice, and the ids of the proposals that have placed it, so that these are
// still applied only once.
type Submit struct {
	// IDs are the ids of the new capsules; empty if Gang is set.
	IDs []CapsuleID `json:"ids,omitempty"`
	// Spec is the spec of each capsule of IDs; it may be nil if there are none.
	Spec *Spec `json:"spec,omitempty"`
	// Owner is the name of the engine to which the capsules are assigned; empty: they belong to the engine that claims
	// them.
	Owner string `json:"owner,omitempty"`
	// Gang is the gang whose members are submitted; nil if IDs is set.
	Gang *Gang `json:"gang,omitempty"`
	// Join adds the members of Gang to the gang with its id, which must exist and have members that are not done. They wait
	// as members: for the gang to start, or to be placed beside those that run. A role joins the role of the same name and
	// spec, or else is a new role of the gang, of no lower priority than all others. Levels, Loose and the minimums of Gang, and of roles that are there already,
	// are those of the gang, or zero. Without an Owner they get that of the first member that is not done. Without Join no
	// gang with the id may exist, but see [Gang.ID].
	Join bool `json:"join,omitempty"`
	// At is when the capsules began to wait, by the submitter's clock; 0: unknown. A ledger stores it and never reads
	// it. Navigators and engines count from it how long the capsules have waited.
	At Instant `json:"at,omitempty"`
	// Labels are stored with each of the capsules, which share one copy. No rule of a ledger reads them.
	Labels map[string]string `json:"labels,omitempty"`
	// LabelsOf are further labels of single capsules, by id, for example what another system calls each of them. Where a
	// key is in Labels too, the value here counts.
	LabelsOf map[CapsuleID]map[string]string `json:"labelsOf,omitempty"`
}

// Place puts a pending capsule on a node and, if the capsule asks for devices, on these device instances
// ([NodeState.PickDevices] chooses them).
type Place struct {
	// Capsule is the pending capsule to place.
	Capsule CapsuleID `json:"capsule"`
	// Node is the node to place it on.
	Node NodeID `json:"node"`
	// Devices are the device instances that the capsule gets there.
	Devices DeviceSet `json:"devices,omitempty"`
	// After makes the capsule wait until everything has stopped that has left the node and still runs there, also what
	// leaves the node by this proposal. Without After the capsule waits only if it does not fit beside what still runs.
	// See [Remains].
	After bool `json:"after,omitempty"`
	// Note is stored with the placement, for example "warm".
	Note string `json:"note,omitempty"`
	// At is when the capsule was placed, by the proposer's clock; an engine sets it where a plan leaves it 0. A ledger
	// stores it and never reads it.
	At Instant `json:"at,omitempty"`
}

// Release ends a placement or a hold: exactly one of Capsule and Hold is set. A final release is for the owner of the
// work, and is never refused. Without Final a placed capsule returns to pending. That is refused on a Ready node,
// because it would be a way to make room for other work; use [Evict] to move a capsule. It is accepted:
//
//   - from a Lost node, as a loss;
//   - from a Cordoned node, if budgets allow it and the gang of the capsule stays whole, at its minimums, or unplaced;
//   - from any node for a whole gang, if the gang is broken or a member is on a Cordoned node, and budgets allow it;
//   - from any node for a capsule that waits to begin ([State.Waiting]), or may not because others have overfilled the node
//     ([Confirm]): it has never run there, so no rule is judged;
//   - with Stopped.
type Release struct {
	// Capsule is the capsule to release; empty if Hold is set.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// From is the node that the capsule must be on; empty: any node.
	From NodeID `json:"from,omitempty"`
	// Final ends the capsule for good. Without Final it returns to pending.
	Final bool `json:"final,omitempty"`
	// Stopped says that the capsule does not run although it should, for example because its start has failed. It
	// returns to pending from any node, as a loss. Only the agent of the node says so, in a proposal that contains only
	// releases that are Stopped or Final, and placements of capsules that have stopped. With Final it has failed and is
	// not tried again; the ledger sets Final itself when the capsule has failed [Spec].Attempts times.
	Stopped bool `json:"stopped,omitempty"`
	// At is when the capsule failed, if Stopped is set, or when it was released to pending, by the proposer's clock; an
	// engine sets it where a plan leaves it 0. A ledger stores it with the [Failures] of the capsule and never compares
	// it with a clock. 0 for a hold, and for a final release without Stopped.
	At Instant `json:"at,omitempty"`
	// Hold is the hold to release; empty if Capsule is set.
	Hold HoldID `json:"hold,omitempty"`
}

// HoldID names a hold.
type HoldID string

// Hold reserves room on a node for a later placement. The room counts as used. The navigator that the hold is for
// releases it in the proposal that uses the room. Every hold has an end. A ledger has no clock, so every engine
// releases holds whose end has passed before it plans; where no engine runs, they stay. A ledger accepts a hold whose
// end has passed already.
type Hold struct {
	// ID identifies the hold.
	ID HoldID `json:"id"`
	// Node is the node on which the hold is.
	Node NodeID `json:"node"`
	// Room is the amount of each resource that the hold takes.
	Room Resources `json:"room"`
	// Devices are the device instances on which the hold takes Milli.
	Devices DeviceSet `json:"devices,omitempty"`
	// Milli is how much the hold takes of each of Devices, in thousandths.
	Milli int `json:"milli,omitempty"`
	// For says what the hold is for; navigators read it, the ledger does not.
	For string `json:"for,omitempty"`
	// Ends is when engines release the hold.
	Ends time.Time `json:"ends"`
}

// A mark whose key begins with one of these prefixes pins a capsule, or all members of a gang, to the owner that is its
// value: the id of the capsule or gang follows the prefix. See [Assign]. [Submit] is not judged by it. A pin outlives what it
// is about until the mark is removed, so a capsule that is submitted again under the id has it, too.
const (
	PinPrefix     = "pinned/"
	PinGangPrefix = "pinned-gang/"
)

// Assign changes the owner of a capsule. It is a compare-and-swap: the owner must be From now (empty: none). While the
// capsule, or the gang that it is a member of, is pinned to an owner ([PinPrefix]), Assign to another one is refused
// unless the proposal bets on that mark ([MarkAt]), and so shows that the proposer knows of the pin. To take a capsule
// from its owner and leave it without one is always allowed.
type Assign struct {
	// Capsule is the capsule to assign.
	Capsule CapsuleID `json:"capsule"`
	// From is the owner that the capsule must have now; empty: none.
	From string `json:"from,omitempty"`
	// Owner is the new owner; empty: the engine that claims the capsule.
	Owner string `json:"owner,omitempty"`
}

// Mark stores a small value under a key: a lease term, a node group, a failed mark. An empty value deletes the mark.
type Mark struct {
	// Key identifies the mark.
	Key string `json:"key"`
	// Value is the new value; empty: the mark is deleted.
	Value string `json:"value,omitempty"`
}

// Adopt records that a capsule runs on a node already, no matter how it was started. Because this is a fact, the ledger
// does not judge it by free capacity, requirements, nominations, budgets or the minimums of gangs, and the node may be
// cordoned. Afterwards the node may give more than it has ([State.Overcommitted]); no new placement is admitted there
// that does not fit. A restarted orchestrator proposes an Adopt for each capsule that its agents report.
//
// The id may be unknown. Then Spec is required, and a Submit in the same proposal gives the capsule an owner, labels or
// a gang. Or the id may be that of a pending capsule. Adopt is refused for a placed capsule, and the refusal names its
// node: stop the capsule that runs twice, or release that placement in the same proposal. It is also refused for a
// capsule that has ended or still stops somewhere: stop the capsule, or submit the id again. On a node that Confirms,
// the capsule counts as begun. A navigator's plan may not hold an Adopt.
type Adopt struct {
	// Capsule is the capsule that runs.
	Capsule CapsuleID `json:"capsule"`
	// Spec is the spec with which the capsule runs; it replaces the spec of a pending capsule. Nil: the spec of the
	// pending capsule.
	Spec *Spec `json:"spec,omitempty"`
	// Node is the node on which it runs, which must not be Lost.
	Node NodeID `json:"node"`
	// Devices are the device instances that the capsule uses there, as many as its spec asks for. They may be unhealthy
	// or taken.
	Devices DeviceSet `json:"devices,omitempty"`
	// Note is stored with the placement, like Place.Note.
	Note string `json:"note,omitempty"`
	// At is the instant at which the capsule was started, by the clock of the reporting process; 0: unknown.
	At Instant `json:"at,omitempty"`
}

// Respec gives a capsule another spec. A pending capsule may get any spec; it keeps its place in the order of submission and
// its age, and its nomination ends. A placed capsule may get any spec, too, but keeps the number and the share of its
// devices. What it takes of the node, its Envelope and Extras, is judged at once: it grows in place if its node has that
// beside all else. Otherwise the refusal says how much is missing. The same proposal may evict capsules that it outranks,
// with its id in [Evict].For. What it requires of nodes and of company is judged when it is placed the next time.
//
// A capsule gets room before it uses it, and returns room after it has stopped using it. To grow, the agent of the node
// raises the limit after the Respec is committed; to shrink, it lowers the limit first, and Respec is proposed then
// (Applied). A proposal with a Respec may do nothing else to that capsule. A navigator's plan may change the Envelope of
// its own work, and nothing else of a spec. docs/commitments.md has all conditions.
type Respec struct {
	// Capsule is the capsule that gets another spec.
	Capsule CapsuleID `json:"capsule"`
	// Since is the revision at which the capsule was placed ([Capsule.PlacedAt]); 0: it is pending.
	Since Revision `json:"since,omitempty"`
	// Spec is the new spec.
	Spec *Spec `json:"spec"`
	// Applied says that the placed capsule takes what Spec says already, because its agent or another party has changed
	// it. That is a fact, so what it takes more is not judged, and the node may then give more than it has
	// ([State.Overcommitted]). A capsule that has begun ([Capsule.Begun]) shrinks only with Applied.
	Applied bool `json:"applied,omitempty"`
	// Stopping says that the capsule was taken off its node, and still runs there with this spec ([Remains]); Since is
	// then [Remains.Since]. Its groups and rules there are replaced: who comes from then on is judged by them. What it
	// takes there, in resources, devices and extras, must stay. It is a fact, so a plan may not hold it. The capsule's own
	// record keeps its spec.
	Stopping bool `json:"stopping,omitempty"`
}

// Resize is the former name of [Respec], under which programs that were written before it still compile.
//
// Deprecated: write Respec.
type Resize = Respec

// Confirm is the report of a node's agent about a capsule there: the capsule is about to run, serves, does not serve,
// or has stopped. Exactly one of Begun, Ready, NotReady and Stopped must be set. A proposal with a Confirm may
// otherwise hold only releases that are Final or Stopped, and placements of capsules that the same proposal reports as
// stopped. A navigator's plan may not hold a Confirm.
type Confirm struct {
	// Capsule is the capsule that the agent reports about.
	Capsule CapsuleID `json:"capsule"`
	// Since is the revision at which the capsule was placed there ([Capsule.PlacedAt], [Remains.Since]).
	Since Revision `json:"since"`
	// Begun says that the capsule is about to run where it is placed. The agent proposes it before it starts the
	// capsule, and starts the capsule only after the commit. The ledger refuses Begun while a capsule still runs that
	// must stop first. That refusal is ErrInfeasible if View is set; the agent then tries again after a later revision.
	// The ledger also refuses it, as a conflict, if the capsule has got another spec after View ([Respec]): the agent
	// must start it with the new spec. The node must be one that Confirms and is not Lost.
	//
	// Begun is also refused if the node has too little, of something that the capsule takes, for what runs there, what still
	// stops there, what was placed there before the capsule, and the capsule. That comes about where others put work on the
	// node ([Adopt]), or where it has less than before. So who came last does not begin; the refusal says what is short, in
	// Rejection.Dimension, Want and Free. Then either wait until the node has room, or give the placement back with a
	// [Release] without Final: that is no failure, but planners avoid the node for that capsule for a while.
	Begun bool `json:"begun,omitempty"`
	// Ready says that the capsule serves. From then on budgets count it as healthy ([Budget]). If Begun was not
	// confirmed before, Ready implies it, and is refused where Begun would be. After another placement the capsule is
	// not ready until Ready is confirmed again.
	Ready bool `json:"ready,omitempty"`
	// NotReady says that a capsule that was Ready runs but does not serve: its health check failed, or it restarts in
	// place. Budgets count it as missing until the next Ready. NotReady is refused for a capsule that is not ready.
	NotReady bool `json:"notReady,omitempty"`
	// Stopped says that a capsule that was taken off its node no longer runs there: its [Remains] end. If the capsule
	// is still placed but no longer runs, it has failed, and Stopped is refused: use [Release.Stopped] if it is to run
	// again. If it is done, propose {Release Final, Confirm Stopped} together.
	Stopped bool `json:"stopped,omitempty"`
}

// Evict takes a capsule off its node, either to make way for other work or to move the capsule.
//
// With For or ForGang it is an eviction to make way. The evicted capsule, the victim, becomes pending again. The same
// proposal must place the capsule or gang that is named, or let the capsule grow where it is ([Respec]). That newcomer must
// have a strictly higher priority and need room that the victim takes; broken gangs are an exception. The ledger puts back
// each victim that need not leave, so no capsule is evicted without need.
//
// Without For and ForGang it is a move: the same proposal must place the capsule again. The capsule must be [Spec.Movable],
// or covered by a [Budget], or on a node that takes no new work or has a NoExecute taint that it does not tolerate for
// ever, or wait to begin ([State.Waiting]).
//
// Budgets hold for both. A gang must keep the minimum of every role, or have no placed member left. docs/commitments.md has
// all conditions.
type Evict struct {
	// Capsule is the capsule to take off its node.
	Capsule CapsuleID `json:"capsule"`
	// From is the node on which the capsule must be placed.
	From NodeID `json:"from"`
	// Since is the revision at which it must have been placed there ([Capsule.PlacedAt]).
	Since Revision `json:"since"`
	// For is the capsule for which the victim makes way, newly placed or growing; empty if ForGang is set, or for a move.
	For CapsuleID `json:"for,omitempty"`
	// ForGang is the gang for whose members the victim makes way; empty if For is set, or for a move.
	ForGang GangID `json:"forGang,omitempty"`
	// Surge makes a move a surge: the capsule runs on, keeps its room and counts as healthy where it is ([Capsule.Surge]),
	// until it is confirmed Ready where the proposal places it. So no budget forbids it. If it leaves that place before, it
	// is back where it runs, and not pending. The spec must permit it ([Spec.Surge]), both nodes must confirm
	// ([Node.Confirms]), and the capsule must be in no gang, must not backfill, and must have no second instance. A capsule
	// that has not begun is moved without a surge: nothing of it runs.
	Surge bool `json:"surge,omitempty"`
}

// recalls reports whether the eviction of c is a recall of a loan: it makes way for the nominee from which c borrows.
func (e *Evict) recalls(c *Capsule) bool {
	return c.Borrows() != nil && *c.Borrows() == Nominee{e.For, e.ForGang}
}

// cause names the capsule or the gang that an eviction makes way for.
func (e *Evict) cause() string {
	return Nominee{e.For, e.ForGang}.String()
}

// Protect keeps a capsule on its node for a while: no [Evict], and no [Release] from a cordoned node, takes it off. It
// does not protect a capsule that its owner releases for good, that stops, or whose node is lost. With For, the
// protection begins with a placement that the same proposal makes. With Since, the protection ends. It also ends with
// the placement.
//
// No rule of a ledger reads a clock, so engines end protections. Each engine counts For from the moment at which it
// first sees the protection, and the first to finish proposes the end. An engine that restarts counts anew; where no
// engine runs, protections stay. A plan may protect only work of its navigator, and may not end a protection
// ([State.JudgePlan]).
type Protect struct {
	// Capsule is the capsule to protect.
	Capsule CapsuleID `json:"capsule"`
	// For is the time after which engines end the protection, at most [Limits.Protect]; 0 if Since is set.
	For time.Duration `json:"for,omitempty"`
	// Since ends the protection of the placement that was made at this revision ([Capsule.PlacedAt]); 0 if For is set.
	Since Revision `json:"since,omitempty"`
}

// Nominate claims room on nodes for a pending capsule or gang, its nominee. A nomination takes no room: the nodes' free
// capacity stays as it is. It filters admission only: on a node with nominated room, a placement must leave free the
// room of all nominations that outrank it. Two nominations that want the same nodes therefore never wait for each
// other. A nomination may lend its room to short work that consents to leave ([Spec.Backfills]).
//
// A nomination ends when its nominee is placed, released for good, changed or joined by members; when a Nominate without
// Parts ends it; and when its time is over, which engines see. A new Nominate for the same capsule or gang replaces it. A
// ledger refuses a nomination of more than its nominee asks for, and one that would exceed [Limits.NominatedShare].
// docs/commitments.md has all conditions.
type Nominate struct {
	// Capsule is the pending capsule that the room is for; empty if Gang is set.
	Capsule CapsuleID `json:"capsule,omitempty"`
	// Gang is the gang that the room is for; none of its members may be placed. Empty if Capsule is set.
	Gang GangID `json:"gang,omitempty"`
	// Since is the revision at which the nomination was made that this Nominate replaces or ends. 0: it may replace or
	// end any nomination, and there need be none to replace.
	Since Revision `json:"since,omitempty"`
	// Aged is how far the nomination ranks above the priority of its capsule; at most Limits.NominationAging.
	Aged int32 `json:"aged,omitempty"`
	// Parts is the claimed room, at most one part for each node. Without Parts, Nominate ends the nomination.
	Parts []NominatedRoom `json:"parts,omitempty"`
	// Ends is when engines end the nomination, at the latest Limits.Nominate after they first saw it; zero if there are
	// no Parts.
	Ends time.Time `json:"ends,omitzero"`
	// Lends is the longest running time of capsules that may borrow the room meanwhile ([Spec.Backfills]); they also
	// need a lower priority. Set it to the time that the nominee is expected to wait, and to less in each renewal. 0:
	// the room is not lent. Zero if there are no Parts.
	Lends time.Duration `json:"lends,omitempty"`
}

// nominee names the capsule or the gang for an error text.
func (c *Nominate) nominee() string { return Nominee{c.Capsule, c.Gang}.String() }

// NominatedRoom is the room that a nomination claims on one node.
type NominatedRoom struct {
	// Node is the node on which the room is.
	Node NodeID `json:"node"`
	// Room is the amount of each resource that is claimed.
	Room Resources `json:"room"`
	// Devices are the device instances on which Milli is claimed.
	Devices DeviceSet `json:"devices,omitempty"`
	// Milli is how much is claimed of each of Devices, in thousandths.
	Milli int `json:"milli,omitempty"`
}

// misfit says why the claimed room can serve none of the specs even on an empty node, to complete "nodes ...". Empty: it can
// serve one of them. Only the description of the node is judged, not its use.
func (r *NominatedRoom) misfit(n *Node, specs []*Spec, names *dimensionNames) string {
	if !n.Schedulable() {
		return Misfit{kind: unschedulable}.text(nil, names)
	}
	for d, room := range r.Room {
		if room > n.Capacity[d] {
			return Misfit{kind: shortOfRoom, arg: d}.text(nil, names)
		}
	}
	if r.Devices>>n.Devices.Count != 0 || r.Devices&n.Devices.Unhealthy != 0 {
		return "lack the devices"
	}
	why := ""
	for _, s := range specs {
		state := NodeState{Node: n}
		switch {
		case !state.meets(s):
			why = "do not meet its requirements"
		case r.Devices != 0 && !s.Devices.Accepts(n.Devices.Model):
			why = "have other devices"
		default:
			return ""
		}
	}
	return why
}

// exceeds returns what a part claims beyond what the capsules of the roles ask for that may be on the node, and what
// these ask for; empty: nothing.
func (r *NominatedRoom) exceeds(n *Node, roles []Role, names *dimensionNames) (over, of string) {
	var claims, asks amounts
	claims.addPart(r)
	for i := range roles {
		if !(&NodeState{Node: n}).meets(roles[i].Spec) || roles[i].Spec.Devices.Count > 0 && !roles[i].Spec.Devices.Accepts(n.Devices.Model) {
			continue
		}
		asks.addRole(&roles[i])
		if more, _ := claims.beyond(&asks, names); more == "" {
			return "", "" // most often after the first role
		}
	}
	return claims.beyond(&asks, names)
}

// PutBudget makes a budget, or replaces the one with the same id. Wishes of the same proposal must keep both the old
// and the new one.
type PutBudget struct {
	// Budget is the budget.
	Budget Budget `json:"budget"`
}

// RemoveBudget ends a budget. Wishes of the same proposal must still keep it.
type RemoveBudget struct {
	// Budget is the budget to end.
	Budget BudgetID `json:"budget"`
}

// PutQueue makes a queue, or replaces the one with the same id. Its parent must exist, or be put earlier in the proposal. A cycle, more than 8
// levels, and a tree in which an amount adds up to more than 64 bits can hold are [ErrInvalid].
type PutQueue struct {
	// Queue is the queue.
	Queue Queue `json:"queue"`
}

// RemoveQueue ends a queue. It is refused while the queue is the parent of another, and if after the proposal a capsule names it
// that has not been released for good.
type RemoveQueue struct {
	// Queue is the queue to end.
	Queue QueueID `json:"queue"`
}

// Precondition is a bet on the state before the proposal. The set is closed: [NodeFreeOf],
// [GangUnplaced], [NodeAt], [GroupIn], [MarkAt]; as values, not pointers.
type Precondition interface{ precondition() }

// NodeFreeOf bets that at least this much is still free on the node.
type NodeFreeOf struct {
	// Node is the node that the bet is about.
	Node NodeID
	// AtLeast is the amount of each resource that must be free.
	AtLeast Resources
}

func (NodeFreeOf) precondition() {}

// GangUnplaced bets that no member of the gang is placed.
type GangUnplaced struct {
	// Gang is the gang that the bet is about.
	Gang GangID `json:"gang"`
}

func (GangUnplaced) precondition() {}

// NodeAt is the strict, coarse bet: nothing at all has changed on the node since these counters were read. A counter
// that is zero is not compared.
type NodeAt struct {
	// Node is the node that the bet is about.
	Node NodeID `json:"node"`
	// Usage and Specification are the counters that were read; zero: not compared.
	Usage         Revision `json:"usage,omitempty"`
	Specification Revision `json:"specification,omitempty"`
}

func (NodeAt) precondition() {}

// GroupIn bets that a placed capsule of the group is in this domain of the level.
type GroupIn struct {
	// Group names the group, Level the label of nodes that divides them into domains, and Domain the value of that label.
	Group  string `json:"group"`
	Level  string `json:"level"`
	Domain string `json:"domain"`
}

func (GroupIn) precondition() {}

// MarkAt bets that a mark was last set at a revision, or that it does not exist.
type MarkAt struct {
	// Key identifies the mark that the bet is about.
	Key string `json:"key"`
	// Revision is the revision at which the mark was set; zero: the mark does not exist.
	Revision Revision `json:"revision,omitempty"`
}

func (MarkAt) precondition() {}
