package promorbit

import (
	"slices"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/orbitsched/orbit"
)

const queueUnit = " CPU is in milli-cores, memory and disk are in bytes. The resource device/MODEL is in thousandths of a device of the model, and extra/NAME is an extra."

var (
	descQueueUsed      = desc("queue_used", "What a queue uses of each resource that its tree divides: its own capsules, and what its children use beyond what they do not lend. Of other queues: the sum of what their own capsules use."+queueUnit, "queue", "resource")
	descQueueNominal   = desc("queue_nominal", "The nominal quota of a queue, without that of its children. Of other queues: the sum."+queueUnit, "queue", "resource")
	descQueueBorrowed  = desc("queue_borrowed", "What a queue uses beyond its nominal quota and what its children lend. Of other queues: the sum."+queueUnit, "queue", "resource")
	descQueueAvailable = desc("queue_available", "What a queue may still use; below 0 if it or a queue above it uses more than there is, as after a quota was made smaller. Of other queues: the smallest."+queueUnit, "queue", "resource")
	descQueueShare     = desc("queue_share", "The share of a queue: the most, over all resources, of what it borrows divided by what it and its siblings may use at most, and by its weight. 0 if it borrows nothing. Of other queues: the largest.", "queue")
	descQueueWaiting   = desc("queue_waiting_capsules", "Pending capsules that name a queue. Of other queues: the sum.", "queue")
)

// queueSeries has the values of a queue, or of several that have no series of their own.
type queueSeries struct {
	used, nominal, borrowed map[string]*wide
	available               map[string]int64
	share                   orbit.Share
	waiting                 int
}

// add adds a queue. Of several queues it counts what their own capsules use, because what a queue uses may contain what its
// children use.
func (s *queueSeries) add(q *orbit.QueueState, alone bool) {
	used := q.Own()
	if alone {
		used = q.Used()
	}
	sum := func(to map[string]*wide, amounts map[string]int64) {
		for name := range used {
			if to[name] == nil {
				to[name] = &wide{}
			}
			to[name].add(amounts[name])
		}
	}
	sum(s.used, used)
	sum(s.nominal, q.Queue.Nominal)
	sum(s.borrowed, q.Borrowed())
	for name, amount := range q.Available() {
		if least, again := s.available[name]; !again || amount < least {
			s.available[name] = amount
		}
	}
	if share := q.Share(); share.Compare(s.share) > 0 {
		s.share = share
	}
	s.waiting += q.Waiting
}

// collectQueues sends what queues have, use and borrow, and how many capsules wait in them.
func (l *Ledger) collectQueues(ch chan<- prometheus.Metric, state *orbit.State) {
	var all []present
	for q := range state.Queues() {
		all = append(all, present{string(q.Queue.ID), int64(q.Waiting)})
	}
	l.queues.show(all)
	of := map[string]*queueSeries{}
	for q := range state.Queues() {
		id := string(q.Queue.ID)
		name := l.queues.value(id)
		if of[name] == nil {
			of[name] = &queueSeries{map[string]*wide{}, map[string]*wide{}, map[string]*wide{}, map[string]int64{}, orbit.Share{}, 0}
		}
		of[name].add(&q, l.queues.shown[id])
	}
	for name, s := range of {
		s.collect(ch, name, state)
	}
}

// collect sends the series of a queue.
func (s *queueSeries) collect(ch chan<- prometheus.Metric, queue string, state *orbit.State) {
	gauge(ch, descQueueShare, s.share.Float(), queue)
	gauge(ch, descQueueWaiting, float64(s.waiting), queue)
	for name := range s.used {
		resource := queueResource(state, name)
		gauge(ch, descQueueUsed, s.used[name].float(), queue, resource)
		gauge(ch, descQueueNominal, s.nominal[name].float(), queue, resource)
		gauge(ch, descQueueBorrowed, s.borrowed[name].float(), queue, resource)
		gauge(ch, descQueueAvailable, float64(s.available[name]), queue, resource)
	}
}

// queueDimensions are the names that queues give to dimensions; importers may show other names for them.
var queueDimensions = [orbit.Dimensions]string{"cpu", "memory", "disk", "slots", "dim4", "dim5", "dim6", "dim7"}

// queueResource returns the value of the label resource for the name of a resource in a queue: dimensions have the names that
// they have in other metrics, unless two of them have the same.
func queueResource(state *orbit.State, name string) string {
	d := slices.Index(queueDimensions[:], name)
	if d < 0 {
		return text(name)
	}
	for o := range orbit.Dimensions {
		if o != d && state.DimensionName(o) == state.DimensionName(d) {
			return name
		}
	}
	return text(state.DimensionName(d))
}
