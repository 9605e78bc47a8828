package orbit

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"math"
	"math/bits"
	"slices"
	"strings"

	"github.com/orbitsched/orbit/internal/cow"
	"github.com/orbitsched/orbit/internal/wide"
)

// QueueID names a queue. It may be used again after the queue has ended ([RemoveQueue]).
type QueueID string

// Queue is a share of the cluster that capsules are charged to ([Spec.Queue]). Queues form trees: a queue may borrow what
// the other queues of its tree do not use, and lends what it does not use itself.
//
// Nominal, Borrow and Lend are amounts by the name of the resource: "cpu" (in milli-cores), "memory", "disk", "slots", or "dim4"
// to "dim7"; "device/" and a model, in thousandths of an instance; "extra/" and the name of an extra ([Node.Extras]). A tree
// divides the resources that the Nominal of at least one of its queues names, also with the amount 0. Of these, a queue that
// does not name one has 0. All other resources are not limited there.
//
// A ledger refuses a proposal that places capsules, lets them grow or moves them to another queue ([Respec]) if afterwards a
// queue on the path from theirs to the root has used more than it may, of a resource that they ask for, and more than before.
// It does not judge an [Adopt], and a smaller quota evicts nothing. Between queues an [Evict] to make way takes back what was
// borrowed, at any priorities. docs/commitments.md has the formulas.
type Queue struct {
	// ID identifies the queue.
	ID QueueID `json:"id"`
	// Parent is the queue from which this one borrows, and to which it lends; empty: it is the root of a tree. A tree has
	// at most 8 levels.
	Parent QueueID `json:"parent,omitempty"`
	// Nominal is what the queue may use at any time, in addition to what its children have. No amount is negative.
	Nominal map[string]int64 `json:"nominal,omitempty"`
	// Borrow is how much the queue may use beyond its subtree. Of a resource that it does not name, there is no limit. A
	// root has none to borrow from, so it needs none.
	Borrow map[string]int64 `json:"borrow,omitempty"`
	// Lend is how much of its subtree the queue lends. A resource that it does not name is lent without a limit.
	Lend map[string]int64 `json:"lend,omitempty"`
	// Weight divides the share of the queue: with twice the weight, it may borrow twice as much before its share is as high.
	// 0 counts as 1; at most 1,048,576.
	Weight int64 `json:"weight,omitempty"`
}

// QueueState is a queue and what it uses, at one revision of a state or in a draft. The maps that its methods return are by the
// names of resources (see [Queue]), have only the resources that the queue's tree divides, and are the caller's. An amount
// that does not fit in 64 bits is returned as the largest or smallest number that does.
type QueueState struct {
	// Queue is the queue as the last PutQueue gave it. Read its maps, never write them.
	Queue Queue
	// Changed is the revision at which it was put.
	Changed Revision
	// Living is how many capsules name the queue itself that have not been released for good; Waiting is how many of
	// them are pending.
	Living, Waiting int

	of *queueRecord
	in queueSource
}

// Share is how much of what it could borrow a queue does borrow, divided by its weight ([State.Share]). It is an exact fraction in
// lowest terms: nothing is rounded, and equal shares are equal by ==, too. The zero value is the share of a queue that
// borrows nothing. A share is infinite if the queue borrows of a resource of which its siblings and it may use nothing.
type Share struct {
	// The fraction over/below. It is 0 if over is 0, and infinite if only below is.
	over             uint64
	belowHi, belowLo uint64
}

// shareOf returns over/below in lowest terms. Neither may be negative. A numerator that does not fit in 64 bits counts as
// the largest that does.
func shareOf(over, below wide.Int) Share {
	hi, n := over.Bits()
	if hi > 0 {
		n = math.MaxUint64
	}
	hi, lo := below.Bits()
	switch {
	case n == 0:
		return Share{}
	case hi|lo == 0:
		return Share{over: 1}
	}
	g, rest := n, bits.Rem64(hi, lo, n)
	for rest > 0 {
		g, rest = rest, g%rest
	}
	lo, _ = bits.Div64(hi%g, lo, g)
	return Share{n / g, hi / g, lo}
}

// Compare returns -1 if s is less than o, 0 if both are equal, and 1 if s is more.
func (s Share) Compare(o Share) int {
	if s.infinite() || o.infinite() {
		return btoi(s.infinite()) - btoi(o.infinite())
	}
	if s.over == 0 || o.over == 0 {
		return cmp.Compare(s.over, o.over)
	}
	a, b := s.times(&o), o.times(&s)
	return slices.Compare(a[:], b[:])
}

// times returns the numerator of s times the denominator of o, highest word first.
func (s Share) times(o *Share) [3]uint64 {
	carry, low := bits.Mul64(s.over, o.belowLo)
	top, middle := bits.Mul64(s.over, o.belowHi)
	middle, more := bits.Add64(middle, carry, 0)
	return [3]uint64{top + more, middle, low}
}

// infinite reports whether the share is infinite.
func (s Share) infinite() bool { return s.over > 0 && s.belowHi|s.belowLo == 0 }

// Float returns the share as a number for people and charts, rounded; +Inf if it is infinite. Compare shares with Compare.
func (s Share) Float() float64 {
	if s.over == 0 {
		return 0
	}
	return float64(s.over) / (float64(s.belowHi)*(1<<64) + float64(s.belowLo))
}

// String returns the share as a fraction, as in "3/40"; "0", or "infinite".
func (s Share) String() string {
	switch {
	case s.over == 0:
		return "0"
	case s.infinite():
		return "infinite"
	}
	return fmt.Sprintf("%d/%v", s.over, wide.FromBits(s.belowHi, s.belowLo))
}

const (
	// maxQueueLevels is the largest number of levels of a tree of queues, maxQueueWeight the largest weight.
	maxQueueLevels = 8
	maxQueueWeight = 1 << 20
)

// resource is one resource of which queues have amounts: a dimension, if name is empty, or else the name of a model or an
// extra, as in [Queue].
type resource struct {
	name string
	d    int
}

// The prefixes of the names of resources that are no dimensions.
const (
	devicePrefix = "device/"
	extraPrefix  = "extra/"
)

// resourceOf returns the resource with a name, and whether there can be one.
func resourceOf(name string) (r resource, ok bool) {
	if d := slices.Index(defaultDimensions[:], name); d >= 0 {
		return resource{d: d}, true
	}
	for _, prefix := range []string{devicePrefix, extraPrefix} {
		if rest, is := strings.CutPrefix(name, prefix); is && rest != "" {
			return resource{name: name}, true
		}
	}
	return resource{}, false
}

// String returns the name of the resource.
func (r resource) String() string { return cmp.Or(r.name, defaultDimensions[r.d]) }

// quantity returns an amount of the resource in words: "72 cores", "3.5 devices A100".
func (r resource) quantity(amount int64, names *dimensionNames) string {
	if r.name == "" {
		return names.quantity(r.d, amount, true)
	}
	if model, is := strings.CutPrefix(r.name, devicePrefix); is {
		return fmt.Sprintf("%v of device %s", float64(amount)/deviceMilli, model)
	}
	return fmt.Sprintf("%d of %s", amount, strings.TrimPrefix(r.name, extraPrefix))
}

// charge is an amount of each resource: what queues use, or have. The zero value is nothing.
type charge struct {
	room [Dimensions]wide.Int
	// Ordered by name, without amounts of 0. Records share it, so it is replaced and never written to.
	named []namedAmount
}

// namedAmount is an amount of a resource that is no dimension.
type namedAmount struct {
	name   string
	amount wide.Int
}

// of returns the amount of a resource.
func (c *charge) of(r resource) wide.Int {
	if r.name == "" {
		return c.room[r.d]
	}
	for i := range c.named {
		if c.named[i].name == r.name {
			return c.named[i].amount
		}
	}
	return wide.Int{}
}

// add adds an amount of a resource, which may be negative.
func (c *charge) add(r resource, x wide.Int) {
	if x == (wide.Int{}) {
		return
	}
	if r.name == "" {
		c.room[r.d] = c.room[r.d].Add(x)
		return
	}
	i, found := slices.BinarySearchFunc(c.named, r.name, func(n namedAmount, name string) int { return cmp.Compare(n.name, name) })
	c.named = slices.Clone(c.named)
	switch {
	case !found:
		c.named = slices.Insert(c.named, i, namedAmount{r.name, x})
	default:
		if c.named[i].amount = c.named[i].amount.Add(x); c.named[i].amount == (wide.Int{}) {
			c.named = slices.Delete(c.named, i, i+1)
		}
	}
}

// addSpec adds n times what a capsule of the spec takes with devices of a model; n may be negative.
func (c *charge) addSpec(s *Spec, model string, n int64) {
	for r, x := range s.charges(model) {
		c.add(r, wide.Int{}.Plus(n*x))
	}
}

// addCharge adds all amounts of another charge, with the sign -1 it subtracts them.
func (c *charge) addCharge(o *charge, sign int) {
	for r := range o.each {
		x := o.of(r)
		if sign < 0 {
			x = wide.Int{}.Minus(x)
		}
		c.add(r, x)
	}
}

// rises reports whether an amount is more than in was.
func (c *charge) rises(was *charge) bool {
	for d := range c.room {
		if c.room[d].Exceeds(was.room[d]) {
			return true
		}
	}
	return slices.ContainsFunc(c.named, func(n namedAmount) bool { return n.amount.Exceeds(was.of(resource{name: n.name})) })
}

// each yields the resources with an amount other than 0.
func (c *charge) each(yield func(resource) bool) {
	for d := range c.room {
		if c.room[d] != (wide.Int{}) && !yield(resource{d: d}) {
			return
		}
	}
	for i := range c.named {
		if !yield(resource{name: c.named[i].name}) {
			return
		}
	}
}

// queueRecord is what a state keeps of a queue. The state that made it since its last snapshot writes to it in place; every other
// replaces it. There is also a record for an id that living capsules name although there is no queue: adopted ones may.
type queueRecord struct {
	id QueueID
	// Who may write to the record.
	owner cow.Owner
	// Nil: there is no such queue.
	quota *quota
	// What is used as in [Queue], and the part of it that children use: the rest is used by capsules that name the queue itself.
	used, below charge
	// How many capsules name the queue that have not been released for good, and how many of these are pending.
	living, waiting int
	// The last revision at which more of a resource was used than before, or the quota changed.
	tight Revision
	// The last revision at which less of a resource was used than before; 0: never.
	eased Revision
}

// queueAt is a record by its id. A search needs no record of its own for the key.
type queueAt struct {
	id QueueID
	*queueRecord
}

// quota is the part of a queueRecord that only PutQueue and RemoveQueue change, of this queue or of others in its tree.
type quota struct {
	Queue
	changed Revision
	// The subtree of each resource; and how many queues of the subtree name it in Nominal.
	subtree, naming charge
	// How many queues have this one as their parent.
	children int
}

// queueSource finds the queues of a state, of a proposal or of a draft; nil: there is no such queue.
type queueSource interface {
	queue(id QueueID) *queueRecord
}

// parent returns the queue's parent, nil if it has none.
func (q *queueRecord) parent(in queueSource) *queueRecord {
	if q.quota.Parent == "" {
		return nil
	}
	return in.queue(q.quota.Parent)
}

// level returns how many queues are on the path to the root: 1 for a root.
func (q *queueRecord) level(in queueSource) (n int) {
	for ; q != nil && n <= maxQueueLevels; q = q.parent(in) {
		n++
	}
	return n
}

// root returns the root of the queue's tree.
func (q *queueRecord) root(in queueSource) *queueRecord {
	for range maxQueueLevels {
		p := q.parent(in)
		if p == nil {
			break
		}
		q = p
	}
	return q
}

// divides reports whether the tree of which the queue is the root divides a resource.
func (q *queueRecord) divides(r resource) bool { return q.quota.naming.of(r) != (wide.Int{}) }

// local returns what the queue does not lend of a resource.
func (q *queueRecord) local(r resource) wide.Int {
	lend, bound := amountIn(q.quota.Lend, r)
	if !bound {
		return wide.Int{}
	}
	return q.quota.subtree.of(r).Plus(-lend).Above0()
}

// amountIn returns the amount of a resource in a list of a queue, and whether the list names it.
func amountIn(list map[string]int64, r resource) (amount int64, named bool) {
	if len(list) == 0 {
		return 0, false
	}
	amount, named = list[r.String()]
	return amount, named
}

// bubbles returns how much of an amount that the queue uses of a resource counts as used at its parent.
func (q *queueRecord) bubbles(r resource) wide.Int {
	return q.used.of(r).Minus(q.local(r)).Above0()
}

// own returns how much of a resource the capsules use that name the queue itself.
func (q *queueRecord) own(r resource) wide.Int { return q.used.of(r).Minus(q.below.of(r)) }

// available returns what the queue has left of a resource; it may be negative. See [Queue].
func (q *queueRecord) available(in queueSource, r resource) wide.Int {
	parent := q.parent(in)
	if parent == nil {
		return q.quota.subtree.of(r).Minus(q.used.of(r))
	}
	return q.availableBelow(parent.available(in, r), r)
}

// availableBelow returns what the queue has left of a resource if its parent has left so much.
func (q *queueRecord) availableBelow(above wide.Int, r resource) wide.Int {
	used, local := q.used.of(r), q.local(r)
	if borrow, bound := amountIn(q.quota.Borrow, r); bound {
		if most := q.quota.subtree.of(r).Minus(local).Minus(used.Minus(local).Above0()).Plus(borrow); above.Exceeds(most) {
			above = most
		}
	}
	return local.Minus(used).Above0().Add(above)
}

// most returns how much of a resource the queue and all below it may use at most.
func (q *queueRecord) most(in queueSource, r resource) wide.Int {
	subtree := q.quota.subtree.of(r)
	parent := q.parent(in)
	if parent == nil {
		return subtree
	}
	most := q.local(r).Add(parent.most(in, r))
	if borrow, bound := amountIn(q.quota.Borrow, r); bound && most.Exceeds(subtree.Plus(borrow)) {
		return subtree.Plus(borrow)
	}
	return most
}

// borrowed returns how much of a resource the queue uses beyond its subtree.
func (q *queueRecord) borrowed(r resource) wide.Int {
	return q.used.of(r).Minus(q.quota.subtree.of(r)).Above0()
}

// share returns the share of the queue.
func (q *queueRecord) share(in queueSource) Share {
	parent := q.parent(in)
	if parent == nil {
		return Share{}
	}
	return shareIn(in, parent, &q.used, &q.quota.subtree, q.quota.Weight)
}

// shareIn returns the share of a queue below the parent that uses so much, has this subtree and this weight.
func shareIn(in queueSource, parent *queueRecord, used, subtree *charge, weight int64) (most Share) {
	root := parent.root(in)
	for r := range used.each {
		over := used.of(r).Minus(subtree.of(r)).Above0()
		if over == (wide.Int{}) || !root.divides(r) {
			continue
		}
		if s := shareOf(over, parent.most(in, r).Times(int(max(1, weight)))); s.Compare(most) > 0 {
			most = s
		}
	}
	return most
}

// amounts returns the amount of each resource that the tree divides.
func (q *QueueState) amounts(of func(r resource) wide.Int) map[string]int64 {
	if q.of == nil {
		return nil
	}
	out := map[string]int64{}
	root := q.of.root(q.in)
	for r := range root.quota.naming.each {
		out[r.String()] = of(r).Int64()
	}
	return out
}

// Used returns what the queue uses.
func (q *QueueState) Used() map[string]int64 {
	return q.amounts(func(r resource) wide.Int { return q.of.used.of(r) })
}

// Own returns what the capsules use that name the queue itself.
func (q *QueueState) Own() map[string]int64 {
	return q.amounts(func(r resource) wide.Int { return q.of.own(r) })
}

// Subtree returns what the queue has, with what its children lend.
func (q *QueueState) Subtree() map[string]int64 {
	return q.amounts(func(r resource) wide.Int { return q.of.quota.subtree.of(r) })
}

// Local returns what the queue does not lend of its subtree.
func (q *QueueState) Local() map[string]int64 {
	return q.amounts(func(r resource) wide.Int { return q.of.local(r) })
}

// Available returns what the queue may still use; less than 0 if it or a queue above uses more than there is.
func (q *QueueState) Available() map[string]int64 {
	return q.amounts(func(r resource) wide.Int { return q.of.available(q.in, r) })
}

// Borrowed returns what the queue uses beyond its subtree.
func (q *QueueState) Borrowed() map[string]int64 {
	return q.amounts(func(r resource) wide.Int { return q.of.borrowed(r) })
}

// Most returns what the queue and all queues below it may use at most, if no other queue uses anything.
func (q *QueueState) Most() map[string]int64 {
	return q.amounts(func(r resource) wide.Int { return q.of.most(q.in, r) })
}

// Share returns the share of the queue. See [State.Share].
func (q *QueueState) Share() Share {
	if q.of == nil {
		return Share{}
	}
	return q.of.share(q.in)
}

// ShareWith returns the share that the queue would have if it used n capsules of the spec more, which may be negative. Their
// devices are of the model; if it is empty, their devices are not counted.
func (q *QueueState) ShareWith(spec *Spec, model string, n int) Share {
	if q.of == nil || spec == nil {
		return q.Share()
	}
	parent := q.of.parent(q.in)
	if parent == nil {
		return Share{}
	}
	used := q.of.used
	used.addSpec(spec, model, int64(n))
	return shareIn(q.in, parent, &used, &q.of.quota.subtree, q.of.quota.Weight)
}

// faults returns everything that is wrong with q itself, except with the lengths of its names.
func (q *Queue) faults() (out []string) {
	for what, list := range q.lists {
		for _, name := range slices.Sorted(maps.Keys(list)) {
			if _, ok := resourceOf(name); !ok {
				out = append(out, fmt.Sprintf("queue %q: %s names %.100q; a resource is cpu, memory, disk, slots, dim4 to dim7, device/MODEL or extra/NAME", q.ID, what, name))
			}
			if list[name] < 0 {
				out = append(out, fmt.Sprintf("queue %q: %s of %.100s is negative: %d", q.ID, what, name, list[name]))
			}
		}
	}
	if q.Parent == q.ID {
		out = append(out, fmt.Sprintf("queue %q is its own parent", q.ID))
	}
	if q.Weight < 0 || q.Weight > maxQueueWeight {
		out = append(out, fmt.Sprintf("queue %q: weight is %d; it must be from 0 to %d", q.ID, q.Weight, maxQueueWeight))
	}
	return out
}

// lists yields the amounts of the queue, each with the name of its field.
func (q *Queue) lists(yield func(what string, list map[string]int64) bool) {
	_ = yield("Nominal", q.Nominal) && yield("Borrow", q.Borrow) && yield("Lend", q.Lend)
}

// limitedBy returns the queue on the path to the root where an amount is used up: the first that may borrow no more, or
// the root.
func (q *queueRecord) limitedBy(in queueSource, r resource) *queueRecord {
	for {
		parent := q.parent(in)
		if parent == nil {
			return q
		}
		if borrow, bound := amountIn(q.quota.Borrow, r); bound {
			local := q.local(r)
			if !q.quota.subtree.of(r).Minus(local).Minus(q.used.of(r).Minus(local).Above0()).Plus(borrow).Exceeds(parent.available(in, r)) {
				return q
			}
		}
		q = parent
	}
}

// maxBorrowers is how many borrowers a receipt names.
const maxBorrowers = 8

// borrowers returns the other queues in the tree of the queue that borrow of a resource, those with the highest share first. The
// queue itself would be named for what it is refused.
func (q *queueRecord) borrowers(in queueSource, all iter.Seq[*queueRecord], r resource) (ids []QueueID) {
	root, found := q.root(in), []*queueRecord(nil)
	for o := range all {
		if o.id != q.id && o.quota.Parent != "" && o.borrowed(r) != (wide.Int{}) && o.root(in) == root {
			found = append(found, o)
		}
	}
	slices.SortStableFunc(found, func(a, b *queueRecord) int { return b.share(in).Compare(a.share(in)) })
	for _, o := range found[:min(len(found), maxBorrowers)] {
		ids = append(ids, o.id)
	}
	return ids
}

// lack is an amount of a resource that a queue lacks.
type lack struct {
	// The queue, and the one on its path to the root where the amount is used up.
	queue, level QueueID
	of           resource
	missing      int64
	borrowers    []QueueID
}

// fill writes what is missing into a receipt.
func (l *lack) fill(r *Rejection, names *dimensionNames) {
	r.Queue, r.Level, r.Borrowers = l.queue, l.level, l.borrowers
	r.advice = "wait until the queue uses less, reclaim what others borrow, or raise its quota"
	if r.Dimension = l.of.name; r.Dimension == "" {
		r.Dimension = names.name(l.of.d)
	}
}

// text says what is missing, as in: queue "a" lacks 3 cores at queue "all"; "b" and "c" borrow.
func (l *lack) text(names *dimensionNames) string {
	text := fmt.Sprintf("queue %q lacks %s", l.queue, l.of.quantity(l.missing, names))
	if l.level != l.queue {
		text += fmt.Sprintf(" at queue %q", l.level)
	}
	if len(l.borrowers) == 0 {
		return text
	}
	quoted := make([]string, len(l.borrowers))
	for i, id := range l.borrowers {
		quoted[i] = fmt.Sprintf("%q", id)
	}
	return text + "; borrowed by " + strings.Join(quoted, ", ")
}

// equals reports whether two records count the same.
func (q *queueRecord) equals(o *queueRecord) bool {
	if q.living != o.living || q.waiting != o.waiting || !q.used.equals(&o.used) || !q.below.equals(&o.below) || (q.quota == nil) != (o.quota == nil) {
		return false
	}
	return q.quota == nil || q.quota.children == o.quota.children && q.quota.subtree.equals(&o.quota.subtree) && q.quota.naming.equals(&o.quota.naming)
}

// equals reports whether all amounts are equal.
func (c *charge) equals(o *charge) bool { return c.room == o.room && slices.Equal(c.named, o.named) }

// counts says what a record counts, for State.Verify.
func (q *queueRecord) counts() string {
	if q == nil {
		return "nothing"
	}
	text := fmt.Sprintf("%d living, %d waiting, uses %v of it below %v", q.living, q.waiting, q.used, q.below)
	if q.quota != nil {
		text += fmt.Sprintf(", %d children, subtree %v, naming %v", q.quota.children, q.quota.subtree, q.quota.naming)
	}
	return text
}

// above returns the id of the queue's parent; empty: it has none.
func (q *queueRecord) above() QueueID {
	if q.quota == nil {
		return ""
	}
	return q.quota.Parent
}

// queueGives is what a queue means for its parent: what it lends, which resources are named, and how much of its use counts there.
type queueGives struct {
	subtree, naming, used charge
	children              int
}

// gives returns what the queue means for its parent; nothing if there is no such queue.
func (q *queueRecord) gives() (g queueGives) {
	if q.quota == nil {
		return g
	}
	g.children, g.naming = 1, q.quota.naming
	for r := range q.quota.subtree.each {
		g.subtree.add(r, q.quota.subtree.of(r).Minus(q.local(r)))
	}
	for r := range q.used.each {
		g.used.add(r, q.bubbles(r))
	}
	return g
}

// use adds an amount of a resource, which may be negative, to what is used. It returns the parent, and what that uses more by it. Below
// says that a child uses it.
func (q *queueRecord) use(r resource, more wide.Int, below bool) (QueueID, wide.Int) {
	if below {
		q.below.add(r, more)
	}
	if q.quota == nil {
		q.used.add(r, more)
		return "", more
	}
	before := q.bubbles(r)
	q.used.add(r, more)
	return q.quota.Parent, q.bubbles(r).Minus(before)
}

// addNominal adds the Nominal of a queue to a subtree; with sign -1 it subtracts it.
func (q *quota) addNominal(of *Queue, sign int64) {
	for name, x := range of.Nominal {
		r, _ := resourceOf(name)
		q.subtree.add(r, wide.Int{}.Plus(sign*x))
		q.naming.add(r, wide.Int{}.Plus(sign))
	}
}

// standing returns the state of a queue that is found in a source.
func (q *queueRecord) standing(in queueSource) QueueState {
	return QueueState{q.quota.Queue, q.quota.changed, q.living, q.waiting, q, in}
}
