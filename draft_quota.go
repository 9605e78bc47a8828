package orbit

import (
	"cmp"
	"maps"
	"slices"
	"strings"
)

// This file has what a plan uses of queues, and what it may use.

// Queue returns the state of the queue with this id as the plan leaves it so far, and whether there is one. The state is
// that of this moment: later steps of the plan do not change it.
func (d *Draft) Queue(id QueueID) (QueueState, bool) {
	if d.view == nil {
		return QueueState{}, false
	}
	if d.queues == nil || len(d.queues.queues.keys) == 0 {
		return d.view.state.Queue(id)
	}
	books := &tx{s: d.view.state}
	for i := range d.queues.queues.entries {
		books.queueEntry(d.queues.queues.keys[i]).now = d.queues.queues.entries[i].now
	}
	q := books.queue(id)
	if q == nil {
		return QueueState{}, false
	}
	return q.standing(books), true
}

// books returns the queues as the plan leaves them.
func (d *Draft) books() *tx {
	if d.queues == nil {
		d.queues = &tx{s: d.view.state}
	}
	return d.queues
}

// chargeStep counts what a step changes in the queues; undo takes it back. A nil charge changes nothing.
func (d *Draft) chargeStep(c *stepCharge, undo bool) {
	if c == nil {
		return
	}
	from, to := &c.before, &c.after
	if undo {
		from, to = to, from
	}
	d.books().charge(from, -1)
	d.books().charge(to, 1)
}

// arrivalCharge returns what the placement of a capsule of the spec on a node changes in the queues; nil: nothing.
func (d *Draft) arrivalCharge(spec *Spec, n *Node) *stepCharge {
	if spec.Queue == "" {
		return nil
	}
	return &stepCharge{charged{queue: spec.Queue, spec: spec, waiting: true}, charged{queue: spec.Queue, spec: spec, model: spec.modelOn(n), placed: true}}
}

// changedCharge returns the change in the queues if a capsule of the view counts as after from now on, instead of as it counts in the
// view; nil if its spec names no queue.
func (d *Draft) changedCharge(c *Capsule, after charged) *stepCharge {
	if c.Spec.Queue == "" {
		return nil
	}
	return &stepCharge{chargedAs(c, d.describes(c.Node), true), after}
}

// chargeIfAllowed counts a step of a capsule in the queues if their quotas allow it, judged as by the ledger; else it returns the refusal.
func (d *Draft) chargeIfAllowed(c *Capsule, n *NodeState, step *stepCharge) error {
	if step == nil {
		return nil
	}
	d.chargeStep(step, false)
	l, want, free := d.lacks(step)
	if l == nil {
		return nil
	}
	d.chargeStep(step, true)
	err := d.refuse(c.ID, n, "%s", l.text(d.names()))
	r, _ := err.(*Rejection) //nolint:errorlint // made here, and never wrapped
	l.fill(r, d.names())
	r.Want, r.Free = want, free
	return r
}

// lacks returns what is lacking for a step that is counted already, how much the step asks for of it, and how much of that there is;
// nil: nothing is lacking. The step may be allowed and still leave a queue overfull; then the earlier steps of the proposal are judged again,
// because this one may have taken quota that they need.
func (d *Draft) lacks(step *stepCharge) (l *lack, want, free int64) {
	l, want, free, overfull := d.lacksFor(step, step)
	if l != nil || !overfull {
		return l, want, free
	}
	for _, earlier := range d.ownCharges() {
		if l, want, free, _ = d.lacksFor(earlier, step); l != nil {
			break
		}
	}
	return l, want, free
}

// lacksFor does the same for one step of the proposal in the making. Last is the newest step, which is counted in the queues but not yet
// in d.steps. Overfull says that a queue uses more than it may.
func (d *Draft) lacksFor(step, last *stepCharge) (l *lack, want, free int64, overfull bool) {
	books := d.books()
	q := books.queue(step.after.queue)
	for r, x := range step.after.asks(&step.before) {
		if q == nil || !q.root(books).divides(r) {
			continue
		}
		for level := q; level != nil; level = level.parent(books) {
			left := level.available(books, r)
			if overfull = overfull || left.Negative(); left.Negative() && d.rises(level.id, r, last) {
				return books.lackOf(q, level, r), x, left.Plus(x).Int64(), true
			}
		}
	}
	return nil, 0, 0, overfull
}

// rises reports whether the proposal in the making lets a queue use more of a resource, with a step that is counted but not noted yet.
func (d *Draft) rises(id QueueID, r resource, step *stepCharge) bool {
	used, own := d.books().queue(id).used.of(r), append([]*stepCharge{step}, d.ownCharges()...) // newest first: so the books go back as they came and get no further queue, which would move those that the caller holds
	for _, c := range own {
		d.chargeStep(c, true)
	}
	was := d.books().queue(id).used.of(r)
	for _, c := range slices.Backward(own) {
		d.chargeStep(c, false)
	}
	return used.Exceeds(was)
}

// ownCharges returns the charges of the steps of the proposal in the making.
func (d *Draft) ownCharges() (out []*stepCharge) {
	for i := len(d.steps) - 1; i >= 0 && d.steps[i].log >= d.open && d.steps[i].open == d.open; i-- {
		if c := d.steps[i].charge; c != nil {
			out = append(out, c)
		}
	}
	return out
}

// reclaimsFairly judges the evictions of the proposal in the making that make way for a capsule which the plan has just charged and
// that names another queue than the victim. If the capsule has no id, nothing is evicted for it.
func (d *Draft) reclaimsFairly(c *Capsule, n *NodeState) error {
	if c.ID == "" || c.Spec.Queue == "" {
		return nil
	}
	for _, do := range d.log[d.open:] {
		e, ok := do.(Evict)
		if !ok || e.For != c.ID && (e.ForGang == "" || e.ForGang != c.Gang()) {
			continue
		}
		victim := d.view.state.Capsule(e.Capsule)
		books := d.books()
		a, b := books.queue(c.Spec.Queue), books.queue(victim.Spec.Queue)
		if a == nil || b == nil || a == b || e.recalls(victim) {
			continue
		}
		after := charged{queue: c.Spec.Queue, spec: c.Spec, model: c.Spec.modelOn(n.Node), placed: true}
		of := reclaim{a: a.id, b: b.id, after: after, victims: d.leavesWith(victim)}
		if why := books.reclaimFault(&of); why != "" {
			return d.refuse(victim.ID, n, "%s", reclaimText(victim.ID, of.b, c.ID, of.a, why))
		}
	}
	return nil
}

// leavesWith returns what the proposal in the making takes off its node with a victim: the victim, or all of its gang if that
// goes whole.
func (d *Draft) leavesWith(victim *Capsule) []charged {
	state, gang := d.view.state, []charged(nil)
	for i, do := range d.log {
		e, ok := do.(Evict)
		if !ok || victim.Gang() == "" {
			continue
		}
		if c := state.Capsule(e.Capsule); c.Gang() == victim.Gang() {
			if gang = append(gang, charged{}); i >= d.open {
				gang[len(gang)-1] = chargedAs(c, state.Node(c.Node).Node, true)
			}
		}
	}
	if g := state.Gang(victim.Gang()); g != nil && len(gang) >= g.Total() {
		return gang
	}
	return []charged{chargedAs(victim, state.Node(victim.Node).Node, true)}
}

// withinQuota returns the spec as an engine may choose a node for it: with only those of its device models for which there is quota.
// The others are in short. The error is a *NoFit if there is quota for none.
func (d *Draft) withinQuota(spec *Spec) (within *Spec, short []string, err error) {
	if spec.Queue == "" || d.view == nil {
		return spec, nil, nil
	}
	books := d.books()
	q := books.queue(spec.Queue)
	if q == nil {
		return spec, nil, nil
	}
	if l := d.quotaFor(spec, ""); l != nil { // no model changes that
		return nil, nil, &NoFit{lack: l, names: d.names()}
	}
	var lacks *lack
	for _, r := range q.root(books).quota.naming.named {
		model, is := strings.CutPrefix(r.name, devicePrefix)
		if !is || spec.Devices.Count == 0 || !spec.Devices.Accepts(model) {
			continue
		}
		if l := d.quotaFor(spec, model); l != nil {
			lacks, short = cmp.Or(lacks, l), append(short, model)
		}
	}
	if len(short) == 0 {
		return spec, nil, nil
	}
	models := spec.Devices.Models
	if len(models) == 0 {
		models = d.models()
	}
	narrow := spec.Clone()
	narrow.Devices.Models = slices.DeleteFunc(slices.Clone(models), func(m string) bool { return slices.Contains(short, m) })
	if len(narrow.Devices.Models) == 0 {
		return nil, short, &NoFit{lack: lacks, short: short, names: d.names()}
	}
	within, err = narrow.Share()
	return within, short, err
}

// models returns the device models of all nodes. It looks at each node, at most once for each Sync.
func (d *Draft) models() []string {
	if d.allModels == nil {
		seen := map[string]bool{}
		for n := range d.view.state.Nodes() {
			if n.Node.Devices.Count > 0 {
				seen[n.Node.Devices.Model] = true
			}
		}
		d.allModels = slices.AppendSeq([]string{}, maps.Keys(seen))
		slices.Sort(d.allModels)
	}
	return d.allModels
}

// quotaFor returns what is lacking in the queues for a capsule of the spec with devices of a model; nil: nothing is.
func (d *Draft) quotaFor(spec *Spec, model string) *lack {
	step := &stepCharge{charged{queue: spec.Queue, spec: spec, waiting: true}, charged{queue: spec.Queue, spec: spec, model: model, placed: true}}
	d.chargeStep(step, false)
	l, _, _ := d.lacks(step)
	d.chargeStep(step, true)
	return l
}
