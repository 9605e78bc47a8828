package orbit

import (
	"cmp"
	"fmt"
	"hash/maphash"
	"maps"
	"math"
	"math/bits"
	"reflect"
	"slices"
	"strings"
)

// NodeID names a node. It may be used again after the node has left ([RemoveNode]).
type NodeID string

// Node describes a machine. Topology levels are label keys (rack, block, zone); their values are domains.
type Node struct {
	// ID identifies the node.
	ID NodeID `json:"id"`
	// Capacity is the amount of each resource that placements and holds may take.
	Capacity Resources `json:"capacity"`
	// Labels are what a spec's requirements compare; the values of topology levels are domains.
	Labels map[string]string `json:"labels,omitempty"`
	// Devices is the node's group of device instances; the zero value has none.
	Devices Devices `json:"devices"`
	// State says whether the node takes new work, or is lost with everything that is placed on it.
	State Condition `json:"state,omitempty"`
	// Confirms says that the node has an agent that confirms what begins and what has stopped ([Confirm]). On a node
	// without an agent, a capsule counts as running from its placement on, and as stopped when it leaves. Before you take
	// an agent away, wait until what it runs has stopped: afterwards no placement waits for that.
	Confirms bool `json:"confirms,omitempty"`
	// Taints keep work off the node that does not tolerate them.
	Taints []Taint `json:"taints,omitempty"`
	// Extras are amounts of anything else that the node has; at most 16. Of a name that is missing it has 0.
	Extras []Extra `json:"extras,omitempty"`
}

// Condition says what a node is good for.
type Condition uint8

// The conditions of a node.
const (
	// Ready: the node takes new work.
	Ready Condition = iota
	// Cordoned: the node takes no new work. What is placed on it may be released back to pending ([Release]) or moved
	// away ([Evict]), if budgets and the minimums of gangs allow it.
	Cordoned
	// Lost: the node is gone, and everything that is placed on it is lost. It stays Lost until it leaves ([RemoveNode])
	// and joins anew, empty. So the capsules of a node are lost together or not at all.
	Lost
)

var conditionNames = [...]string{"ready", "cordoned", "lost"}

// String returns the name of the condition.
func (c Condition) String() string {
	if int(c) < len(conditionNames) {
		return conditionNames[c]
	}
	return fmt.Sprintf("Condition(%d)", uint8(c))
}

// MarshalText writes the name of the condition.
func (c Condition) MarshalText() ([]byte, error) { return []byte(c.String()), nil }

// UnmarshalText reads what MarshalText writes.
func (c *Condition) UnmarshalText(text []byte) error {
	i := slices.Index(conditionNames[:], string(text))
	if i < 0 {
		return invalidf("node state %q: want ready, cordoned or lost", text)
	}
	*c = Condition(i)
	return nil
}

// Schedulable reports whether the node takes new work: whether it is Ready.
func (n *Node) Schedulable() bool { return n.State == Ready }

// Cordon sets State to Cordoned, or back to Ready if on is false. It does not change a description that says Lost.
func (n *Node) Cordon(on bool) {
	if n.State != Lost {
		n.State = Condition(btoi(on))
	}
}

// Clone returns a copy that shares no memory with n; its Labels are never nil. To change a node of a [State], change a
// Clone and put it. A plain copy (*n) still has the labels, taints and extras of the state. A ledger whose record was
// changed through a plain copy refuses to put or remove that node.
func (n *Node) Clone() Node {
	c := *n.clone()
	if c.Labels == nil {
		c.Labels = map[string]string{}
	}
	return c
}

// clone returns a copy that shares nothing with n.
func (n *Node) clone() *Node {
	c := *n
	c.Labels, c.Taints, c.Extras = maps.Clone(n.Labels), cloned(n.Taints), sortedExtras(n.Extras)
	return &c
}

// equals reports whether two descriptions say the same. Both are in the form in which ledgers keep them.
func (n *Node) equals(o *Node) bool {
	a, b := *n, *o
	a.Labels, a.Taints, a.Extras, b.Labels, b.Taints, b.Extras = nil, nil, nil, nil, nil, nil
	return reflect.DeepEqual(a, b) && maps.Equal(n.Labels, o.Labels) && slices.Equal(n.Taints, o.Taints) && slices.Equal(n.Extras, o.Extras)
}

// digest returns a hash of all that a plain copy of n shares with n.
func (n *Node) digest() (sum uint64) {
	for key, value := range n.Labels {
		sum += maphash.Comparable(hashSeed, [2]string{key, value})
	}
	return digestList(digestList(sum, n.Taints), n.Extras)
}

// digestList adds the elements of a list to a hash.
func digestList[T comparable](sum uint64, list []T) uint64 {
	for i := range list {
		sum = bits.RotateLeft64(sum, 1) ^ maphash.Comparable(hashSeed, list[i])
	}
	return sum
}

// faults says everything that is wrong with n, except with its id and its texts.
func (n *Node) faults() []string {
	out := n.Capacity.faults("capacity")
	out = append(append(append(out, n.Devices.faults()...), n.taintFaults()...), extraFaults(n.Extras, 0)...)
	if n.Devices.Count > 0 && n.Devices.Model == "" {
		out = append(out, "devices without a model")
	}
	if n.State > Lost {
		out = append(out, fmt.Sprintf("unknown node state %d", uint8(n.State)))
	}
	return out
}

// health returns the health of a capsule that is placed on the node. A capsule that borrows its room counts as zero,
// because it may have to leave for the lender. Of a capsule that surges the former instance counts, which serves.
func (n *Node) health(c *Capsule) health {
	if s := c.surging(); s != nil {
		return health{1, btoi(s.Ready)}
	}
	alive := btoi(n.State != Lost && c.Borrows() == nil)
	return health{alive, alive * btoi(c.Ready || !n.Confirms)}
}

// ends reports whether a capsule that is placed on the node has ended when it is taken off ([Spec.Ends]).
func (n *Node) ends(c *Capsule) bool { return c.Spec.Ends && (c.Begun || !n.Confirms) }

// domain returns the domain of a node on a level; empty: the node has no label for the level.
func (n *Node) domain(level string) string {
	if level == NodeKey {
		return string(n.ID)
	}
	if len(level) > 0 && level[0] == anyDomain && n.domain(level[1:]) != "" {
		return inSome
	}
	return n.Labels[level]
}

// eligibleIn returns the domain of a level that the node makes eligible; empty: none, because the node is Lost, does not
// meet what it must, or has no label for the level.
func (n *Node) eligibleIn(level string, must eligibility) string {
	if n.State == Lost || !must.by(n) {
		return ""
	}
	return n.domain(level)
}

// lowers reports whether the description now offers less of some resource or fewer devices than n does. Nil: the node
// has left.
func (n *Node) lowers(now *Node) bool {
	if now == nil || now.Devices.Count < n.Devices.Count {
		return true
	}
	for d := range n.Capacity {
		if now.Capacity[d] < n.Capacity[d] {
			return true
		}
	}
	return false
}

// meetsAll reports whether a node meets all predicates.
func (n *Node) meetsAll(all []Predicate) bool {
	return !slices.ContainsFunc(all, func(p Predicate) bool { return !p.On(n) })
}

// NodeState is a node and its use at one revision. Read it, never write it.
type NodeState struct {
	// Node is the description of the node.
	Node *Node
	// Capsules is the number of capsules placed on the node.
	Capsules int
	// Usage is the revision at which the node's used amounts last changed, releases included.
	Usage Revision
	// Specification is the revision at which capacity, labels, devices or schedulability last changed.
	Specification Revision

	// The resources that live placements and holds take.
	used Resources
	// The use of each device instance, in milli; shared and never written to. Nil: no use.
	devices *deviceUse
	// The nominations that claim room on the node; nil: none.
	nominated *nominated
	// The nominated room that capsules on the node borrow, by nominee; shared and never written to. Nil: none.
	loans *[]loan
	// The capsules that have left the node and still run, in the order in which they left; shared and never written to.
	// Nil: none.
	remains *[]*Remains
	// The number of live holds on the node.
	holds int32
	// The node's number in dense tables.
	index uint32
}

// Used returns the resources that live placements and holds take.
func (n *NodeState) Used() Resources { return n.used }

// same reports whether the records of a node in two states are equal; nominations are not compared.
func (n *NodeState) same(o *NodeState) bool {
	same := n.Usage == o.Usage && n.Specification == o.Specification && (n.remains == nil) == (o.remains == nil)
	return same && (n.remains == nil || slices.EqualFunc(*n.remains, *o.remains, (*Remains).same))
}

// Holds returns the number of live holds on the node.
func (n *NodeState) Holds() int { return int(n.holds) }

// Free returns capacity less use. It is negative in a dimension whose capacity has shrunk below its use. On a node that
// does not confirm ([Node.Confirms]) the remains of capsules that have left it ([Remains]) are deducted too, because no
// placement waits there until they end.
func (n *NodeState) Free() Resources {
	if n.Node == nil {
		return Resources{}
	}
	free := n.Node.Capacity.minus(n.used)
	if n.stops() {
		for r := range n.leaving {
			for d, x := range r.Spec.Envelope.Reservation {
				free[d] = max(free[d], math.MinInt64+x) - x
			}
		}
	}
	return free
}

// stops reports whether the node has remains but does not confirm (any more), so that no placement waits there until
// they end.
func (n *NodeState) stops() bool { return n.remains != nil && !n.Node.Confirms }

// DeviceFree returns the free part of device instance i, in milli: 0 if there is no such instance or it
// is unhealthy.
func (n *NodeState) DeviceFree(i int) int { return max(0, n.deviceLeft(i)) }

// DeviceOver returns how much more of device instance i is given away than it has, in milli. That is 0 unless capsules were adopted
// there ([Adopt]): so much has to leave before any of the instance is free.
func (n *NodeState) DeviceOver(i int) int { return max(0, -n.deviceLeft(i)) }

// deviceLeft returns what an instance has less what is given away: 0 if there is no such instance or it is unhealthy.
func (n *NodeState) deviceLeft(i int) int {
	if n.Node == nil || i < 0 || i >= n.Node.Devices.Count || n.Node.Devices.Unhealthy.Has(i) {
		return 0
	}
	free := deviceMilli
	if n.devices != nil {
		free -= int(n.devices[i])
	}
	if n.stops() {
		for r := range n.leaving {
			free -= btoi(r.Devices.Has(i)) * r.Spec.Devices.Milli
		}
	}
	return free
}

// Index is a number of the node for tables that are indexed by node: from 0 up to, but not including,
// [State.NodeBound]. No other node has it as long as the node is a member; after the node has left, another one may get
// it.
func (n *NodeState) Index() int { return int(n.index) }

// Fits reports whether the node could take one capsule of this spec now: it is schedulable, meets the requirements, and
// has room and devices beside the nominations that outrank the capsule. The capsule counts as not nominated, unless
// [Draft.LookAs] has set its nomination.
func (n *NodeState) Fits(spec *Spec) bool {
	return n.Node != nil && n.Node.Schedulable() && n.hasFree(&spec.Envelope.Reservation) &&
		n.hasDevices(&spec.Devices) && n.meets(spec) && (n.nominated == nil || n.leavesRoom(spec))
}

// hasRoom reports whether want fits into capacity less use. It subtracts values that are known not to be negative, so
// nothing overflows.
func (n *NodeState) hasRoom(want *Resources) bool {
	capacity := &n.Node.Capacity
	for d := range want {
		if want[d] > 0 && want[d] > capacity[d]-n.used[d] {
			return false
		}
	}
	return true
}

// hasFree reports whether want fits into [NodeState.Free], which also deducts remains on a node that does not confirm.
func (n *NodeState) hasFree(want *Resources) bool {
	if !n.stops() {
		return n.hasRoom(want)
	}
	free := n.Free()
	for d := range want {
		if want[d] > 0 && want[d] > free[d] {
			return false
		}
	}
	return true
}

// hasDevices reports whether enough healthy instances of an accepted model have enough free.
func (n *NodeState) hasDevices(r *DeviceRequest) bool {
	if r.Count == 0 {
		return true
	}
	return r.Accepts(n.Node.Devices.Model) && n.devicesWith(r.Milli).Len() >= r.Count
}

// devicesWith returns the instances that have at least this much free.
func (n *NodeState) devicesWith(milli int) DeviceSet {
	var set DeviceSet
	if n.Node == nil {
		return set
	}
	for i := range n.Node.Devices.Count {
		if n.DeviceFree(i) >= milli {
			set |= 1 << i
		}
	}
	return set
}

// meets reports whether the labels satisfy all requirements, and the spec tolerates the taints.
func (n *NodeState) meets(spec *Spec) bool {
	for i := range spec.Require {
		if !spec.Require[i].On(n.Node) {
			return false
		}
	}
	return n.Node.Admits(spec)
}

// PickDevices chooses the instances for a capsule of the spec: those that it fits best (least free, but enough), the
// lowest index among equals. It leaves out instances that are nominated for work that outranks the capsule, and, if
// there are enough others, those for which the capsule would have to wait ([Remains]). It reports false if the node
// cannot serve the request.
func (n *NodeState) PickDevices(spec *Spec) (DeviceSet, bool) {
	r := &spec.Devices
	if r.Count == 0 {
		return 0, true
	}
	if n.Node == nil || !r.Accepts(n.Node.Devices.Model) {
		return 0, false
	}
	open, picked := n.DevicesFor(spec), DeviceSet(0)
	if open.Len() < r.Count {
		return 0, false
	}
	if n.remains != nil && n.Node.Confirms {
		if now := open & n.devicesBeside(r.Milli); now.Len() >= r.Count {
			open = now
		}
	}
	for range r.Count {
		best := n.tightest(open)
		picked |= 1 << best
		open &^= 1 << best
	}
	return picked, true
}

// tightest returns the instance of the set with the least free. It requires a set that is not empty.
func (n *NodeState) tightest(set DeviceSet) int {
	best := bits.TrailingZeros16(uint16(set))
	for s := uint16(set); s != 0; s &= s - 1 {
		if i := bits.TrailingZeros16(s); n.DeviceFree(i) < n.DeviceFree(best) {
			best = i
		}
	}
	return best
}

// takes adds a capsule of the spec to n, a copy that the caller owns, as a plan sees the node after a placement.
func (n *NodeState) takes(spec *Spec, set DeviceSet) {
	n.used = n.used.plus(spec.Envelope.Reservation)
	n.useDevices(set, spec.Devices.Milli)
	n.Capsules++
}

// gives returns room to n, a copy that the caller owns, as a plan sees the node after the release of a placement or a
// hold.
func (n *NodeState) gives(room Resources, set DeviceSet, milli int) {
	n.used = n.used.minus(room)
	n.useDevices(set, -milli)
}

// useDevices adds milli to the use of each instance of a set. It replaces n.devices by a copy, because older states
// share the array.
func (n *NodeState) useDevices(set DeviceSet, milli int) {
	if set == 0 {
		return
	}
	use := n.deviceUse()
	use.add(set, int32(milli))
	n.devices = &use
}

// deviceUse returns a copy of the use of the device instances.
func (n *NodeState) deviceUse() deviceUse {
	if n.devices == nil {
		return deviceUse{}
	}
	return *n.devices
}

// Misfit says why a node cannot take a capsule of some spec. Misfits are comparable, so that nodes can be counted by
// them ([Draft.NoFit]); the zero value says that the node takes it. A misfit m has no text of its own, because it
// refers to a requirement or resource of the spec by its number. To read it, count it once:
//
//	draft.NoFit(spec, map[orbit.Misfit]int{m: 1}).Error() // "0 of 1 nodes fit: 1 lacks memory"
type Misfit struct {
	// Why is a reason that the ledger does not know. It completes "n nodes ...", as in "have a stale report". Empty:
	// the reason is a rule of the ledger, or the node takes the capsule.
	Why string

	kind misfitKind
	// The number of the resource or requirement.
	arg int
}

// Short reports whether the node would take the capsule if more of it were free. Any other misfit stays when other
// capsules leave.
func (m Misfit) Short() bool { return m.kind >= shortOfDevices }

// text returns the misfit in words that complete "n nodes ...".
func (m Misfit) text(spec *Spec, names *dimensionNames) string {
	switch m.kind {
	case unschedulable:
		return "are unschedulable"
	case leaseOver:
		return "have no live lease"
	case unmetRequirement:
		return "do not meet " + spec.Require[m.arg].String()
	case untolerated:
		return "have a taint that is not tolerated"
	case wrongModel:
		if len(spec.Devices.Models) == 0 {
			return "have no device"
		}
		return "have no device of model " + joinWords(spec.Devices.Models)
	case shortOfDevices:
		return "lack " + spec.Devices.want()
	case shortOfRoom:
		return "lack " + names.name(m.arg)
	case nominatedForOthers:
		return "are nominated for others"
	}
	return cmp.Or(m.Why, "fit")
}

type misfitKind uint8

// isShortage reports whether the node lacks nothing but what capsules take of it, free capacity or devices.
func (m Misfit) isShortage() bool { return m.kind == shortOfRoom || m.kind == shortOfDevices }

const (
	fitting misfitKind = iota
	unschedulable
	leaseOver
	unmetRequirement
	untolerated
	wrongModel
	shortOfDevices
	shortOfRoom
	nominatedForOthers
)

// misfit returns the first reason that holds, or the zero value if the node fits. Reasons that stay true longest come
// first: labels seldom change, while free memory changes with every placement.
func (n *NodeState) misfit(spec *Spec) Misfit {
	if n.Node == nil || !n.Node.Schedulable() {
		return Misfit{kind: unschedulable}
	}
	for i := range spec.Require {
		if !spec.Require[i].On(n.Node) {
			return Misfit{kind: unmetRequirement, arg: i}
		}
	}
	if !n.Node.Admits(spec) {
		return Misfit{kind: untolerated}
	}
	if r := &spec.Devices; r.Count > 0 {
		if !r.Accepts(n.Node.Devices.Model) || n.Node.Devices.Count == 0 {
			return Misfit{kind: wrongModel}
		}
		if n.devicesWith(r.Milli).Len() < r.Count {
			return Misfit{kind: shortOfDevices}
		}
	}
	free, want := n.Free(), &spec.Envelope.Reservation
	for d := range want {
		if want[d] > 0 && want[d] > free[d] {
			return Misfit{kind: shortOfRoom, arg: d}
		}
	}
	if !n.leavesRoom(spec) {
		return Misfit{kind: nominatedForOthers}
	}
	return Misfit{}
}

// overcommitted reports whether more is taken of a resource or a device instance than the node has. An instance that is
// missing or unhealthy has nothing.
func (n *NodeState) overcommitted() bool {
	over := !n.used.Within(n.Node.Capacity)
	for i, used := range n.deviceUse() {
		room := int32(deviceMilli * btoi(i < n.Node.Devices.Count && !n.Node.Devices.Unhealthy.Has(i)))
		over = over || used > room
	}
	return over
}

// singular puts the verb with which a reason begins in the singular.
func singular(why string) string {
	verb, _, _ := strings.Cut(why, " ")
	rest := why[len(verb):]
	switch verb {
	case "are":
		return "is" + rest
	case "do":
		return "does" + rest
	case "have":
		return "has" + rest
	case "fit", "hold", "lack", "wait":
		return verb + "s" + rest
	}
	return why
}
