package nav

import (
	"cmp"
	"math"
	"sort"

	"github.com/orbitsched/orbit"
)

// How long a nominee waits for room on one node, by what is known of when work ends there, or by an estimate.

// patientCost estimates how long a nominee waits for room.
type patientCost struct {
	// When there is room by what is known of when work ends; 0: there is now; unknownEnd: it depends on work of which no end is known.
	at orbit.Instant
	// How many have to end until then, see waitingRoom.ends.
	ends float64
}

// unknownEnd comes after all ends that are known.
const unknownEnd = orbit.Instant(math.MaxInt64)

// compare orders costs: soonest first, and then, or where that is not known, fewest to end.
func (c patientCost) compare(o patientCost) int {
	return cmp.Or(cmp.Compare(c.at, o.at), cmp.Compare(c.ends, o.ends))
}

// waitingRoom is a node as the nominee may come to find it.
type waitingRoom struct {
	*orbit.NodeState
	// What is free now, and what will be, beside what is nominated for those that outrank the nominee, and what its members
	// take here.
	now, later freeCapacity
	// What is to be nominated, and how much of each device instance.
	part  orbit.NominatedRoom
	milli [orbit.MaxDevices]int
	// It is nominated for the nominee already, and how long one member more waits.
	own  bool
	cost patientCost
	// Members of gangs run there of which it is not known when they end.
	gangs bool
	// What is known of when work ends there, soonest first, and the time now.
	known []knownEnd
	clock orbit.Instant
}

// Before orders rooms: soonest, then where it is nominated already, then by id.
func (w *waitingRoom) Before(o *waitingRoom) bool {
	if w.cost != o.cost || w.own == o.own {
		return cmp.Or(w.cost.compare(o.cost), cmp.Compare(w.Node.ID, o.Node.ID)) < 0
	}
	return w.own
}

// claims reports whether anything of the node is to be nominated.
func (w *waitingRoom) claims() bool { return w.part.Room != (orbit.Resources{}) || w.part.Devices != 0 }

// wait returns how long one member more waits.
func (w *waitingRoom) wait(spec *orbit.Spec) patientCost {
	at, by := w.soonest(spec)
	return patientCost{at, w.ends(spec, &by)}
}

// soonest returns when there is room for one member more, and how much is free by then: what will be at last, if it is not known when.
// What should have ended already is taken to need as long again as it is late.
func (w *waitingRoom) soonest(spec *orbit.Spec) (at orbit.Instant, by freeCapacity) {
	by = w.now
	future := sort.Search(len(w.known), func(i int) bool { return w.known[i].at > w.clock })
	for late := future - 1; ; {
		if by.capacity(spec) > 0 {
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
		by.leave(end.spec, end.devices, &w.later)
	}
}

// ends estimates how many of the capsules on the node have to end for one member more, as if each of them had an equal share of
// what is used. They end one by one, so what few hold is free sooner than as much that many hold, and less of it lies idle until
// the last has ended. Members of gangs mostly run long, so where some run as many as on no other node are taken to have to end.
// Of nodes that are equal the one is better of which less has to be freed. The more is nominated for others, the higher it is.
func (w *waitingRoom) ends(spec *orbit.Spec, by *freeCapacity) float64 {
	ends, sum := 0.0, 0.0
	add := func(short, used, capacity int64) {
		if short > 0 {
			ends = max(ends, float64(w.Capsules)*float64(short)/float64(max(used, short)))
			sum += float64(short) / float64(capacity)
		}
	}
	for d, want := range spec.Envelope.Reservation {
		if want > 0 {
			add(want-max(0, w.now.resources[d]), w.Used()[d], w.Node.Capacity[d])
		}
	}
	if spec.Devices.Count == 0 {
		return w.rating(ends, sum)
	}
	set, short, used := w.pick(&spec.Devices, by), 0, 0
	for i, free := range w.now.devices {
		if i < w.Node.Devices.Count {
			used += wholeDevice - w.DeviceFree(i)
		}
		if set.Has(i) {
			short += max(0, spec.Devices.Milli-max(0, int(free)))
		}
	}
	add(int64(short), int64(used), wholeDevice)
	return w.rating(ends, sum)
}

// many is more than the capsules that have to end on any node, and more than all that is to be freed there, each resource as a part
// of what the node has.
const many = 1 << 20

// rating puts together how many have to end and how much has to be freed.
func (w *waitingRoom) rating(ends, sum float64) float64 {
	if w.gangs && ends > 0 {
		ends += many
	}
	return ends + sum/many
}

// pick chooses the instances of which least has to be freed, among those of which enough will be free. It requires that there are enough.
func (w *waitingRoom) pick(q *orbit.DeviceRequest, by *freeCapacity) orbit.DeviceSet {
	if q.Count == 0 {
		return 0
	}
	open := *by
	for i, free := range w.now.devices {
		if short := q.Milli - max(0, int(free)); int(open.devices[i]) < q.Milli {
			open.devices[i] = 0
		} else {
			open.devices[i] = int32(q.Milli + max(0, short))
		}
	}
	return open.instances(q, func(a, b int32) bool { return a < b })
}

// seat takes room for a member. It requires that there will be enough.
func (w *waitingRoom) seat(spec *orbit.Spec, set orbit.DeviceSet) {
	w.now.take(spec, set)
	w.later.take(spec, set)
	w.part.Room, _ = w.part.Room.Add(spec.Envelope.Reservation) // it is within capacity, so it does not overflow
	w.part.Devices |= set
	for i := range w.milli {
		if set.Has(i) {
			w.milli[i] += spec.Devices.Milli
			w.part.Milli = max(w.part.Milli, w.milli[i])
		}
	}
}
