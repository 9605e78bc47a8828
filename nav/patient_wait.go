package nav

import (
	"cmp"
	"math"
	"sort"

	"github.com/orbitsched/orbit"
	"github.com/orbitsched/orbit/internal/seats"
)

// How long a nominee waits for room on one node: by the ends of running work that are known, or by an estimate.

// patientCost estimates how long a nominee waits for room.
type patientCost struct {
	// When there is room, by the known ends of running work; 0: there is room now; unknownEnd: it depends on work
	// without a known end.
	at orbit.Instant
	// An estimate of how many capsules have to end until then, see waitingRoom.ends.
	ends float64
}

// unknownEnd stands for an end that is not known. It is later than all known ends.
const unknownEnd = orbit.Instant(math.MaxInt64)

// compare orders costs: the sooner one first. If both are equally soon, or neither is known, the cost with fewer
// capsules that have to end comes first.
func (c patientCost) compare(o patientCost) int {
	return cmp.Or(cmp.Compare(c.at, o.at), cmp.Compare(c.ends, o.ends))
}

// waitingRoom is a node as a choice for the nominee. A choice seats members in it one after another.
type waitingRoom struct {
	*orbit.NodeState
	// What is free now, and what is free once the work that is counted on has ended. Both are less by what is nominated
	// for work that outranks the nominee, and by what the nominee's members seated here take.
	now, later seats.Capacity
	// The part of the nomination on this node, and how many milli of each device instance it claims.
	part  orbit.NominatedRoom
	milli [orbit.MaxDevices]int
	// Room here is nominated for the nominee already (own), and the cost of seating one more member here.
	own  bool
	cost patientCost
	// How many members of one spec are seated here.
	seated int32
	// Members of gangs run here without a known end.
	gangs bool
	// The known ends of work on the node, soonest first, and the time now.
	known []knownEnd
	clock orbit.Instant
}

// Before orders rooms by cost, then puts rooms first that are nominated for the nominee already, then orders by node
// id.
func (w *waitingRoom) Before(o *waitingRoom) bool {
	if w.cost != o.cost || w.own == o.own {
		return cmp.Or(w.cost.compare(o.cost), cmp.Compare(w.Node.ID, o.Node.ID)) < 0
	}
	return w.own
}

// claims reports whether the nomination claims anything on this node.
func (w *waitingRoom) claims() bool { return w.part.Room != (orbit.Resources{}) || w.part.Devices != 0 }

// wait returns the cost of seating one more member here.
func (w *waitingRoom) wait(spec *orbit.Spec) patientCost {
	at, by := w.soonest(spec)
	return patientCost{at, w.ends(spec, &by)}
}

// soonest returns when there is room for one more member, and what is free by then. If the time is not known it returns
// unknownEnd and later. Work that should have ended already is expected to need as long again as it is late.
func (w *waitingRoom) soonest(spec *orbit.Spec) (at orbit.Instant, by seats.Capacity) {
	by = w.now
	future := sort.Search(len(w.known), func(i int) bool { return w.known[i].at > w.clock })
	for late := future - 1; ; {
		if by.Fits(spec) > 0 {
			return at, by
		}
		end := knownEnd{at: unknownEnd}
		if future < len(w.known) {
			end = w.known[future]
		}
		if late >= 0 && w.clock-w.known[late].at < end.at-w.clock {
			end = w.known[late]
			end.at = 2*w.clock - end.at
			late--
		} else if future++; end.at == unknownEnd {
			return unknownEnd, w.later
		}
		at = end.at
		by.Leave(end.spec, end.devices, &w.later)
	}
}

// ends estimates how many of the node's capsules have to end before one more member fits, as if each capsule had an
// equal share of what is used. Capsules end one by one. So room that few capsules hold is free sooner than as much room
// that many capsules hold, and less of it lies idle until the last has ended. Members of gangs mostly run long, so
// nodes on which some run come after all nodes without. Of nodes that are otherwise equal, the node where less has to
// be freed is better. The more is nominated for others, the higher the estimate.
func (w *waitingRoom) ends(spec *orbit.Spec, by *seats.Capacity) float64 {
	ends, sum := 0.0, 0.0
	add := func(short, used, capacity int64) {
		if short > 0 {
			ends = max(ends, float64(w.Capsules)*float64(short)/float64(max(used, short)))
			sum += float64(short) / float64(capacity)
		}
	}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			add(want-max(0, w.now.Resources[d]), w.Used()[d], w.Node.Capacity[d])
		}
	}
	if spec.Devices.Count == 0 {
		return w.rating(ends, sum)
	}
	set, short, used := w.pick(&spec.Devices, by), 0, 0
	for i, free := range w.now.Devices {
		if i < w.Node.Devices.Count {
			used += seats.WholeDevice - w.DeviceFree(i)
		}
		if set.Has(i) {
			short += max(0, spec.Devices.Milli-max(0, int(free)))
		}
	}
	add(int64(short), int64(used), seats.WholeDevice)
	return w.rating(ends, sum)
}

// many is a weight. It is larger than the number of capsules that have to end on any node, and larger than the sum of
// what has to be freed there, each resource as a fraction of the node's capacity.
const many = 1 << 20

// rating makes one number of how many capsules have to end, whether gangs run here, and, as a tie-break, how much has
// to be freed.
func (w *waitingRoom) rating(ends, sum float64) float64 {
	if w.gangs && ends > 0 {
		ends += many
	}
	return ends + sum/many
}

// pick chooses device instances: of those with enough free by then, the ones where the least has to be freed. The
// caller ensures that there are enough.
func (w *waitingRoom) pick(q *orbit.DeviceRequest, by *seats.Capacity) orbit.DeviceSet {
	if q.Count == 0 {
		return 0
	}
	open := *by
	for i, free := range w.now.Devices {
		if short := q.Milli - max(0, int(free)); int(open.Devices[i]) < q.Milli {
			open.Devices[i] = 0
		} else {
			open.Devices[i] = int32(q.Milli + max(0, short))
		}
	}
	return open.Instances(q, func(a, b int32) bool { return a < b })
}

// seat takes room for a member, both now and later, and adds it to the nomination's part. The caller ensures that there
// will be enough.
func (w *waitingRoom) seat(spec *orbit.Spec, set orbit.DeviceSet) {
	w.now.Take(spec, set)
	w.later.Take(spec, set)
	w.part.Room, _ = w.part.Room.Add(spec.Envelope.Reservation) // it is within capacity, so it does not overflow
	w.part.Devices |= set
	for i := range w.milli {
		if set.Has(i) {
			w.milli[i] += spec.Devices.Milli
			w.part.Milli = max(w.part.Milli, w.milli[i])
		}
	}
}
