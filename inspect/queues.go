package inspect

import (
	"cmp"
	"maps"
	"slices"
	"strings"

	"github.com/orbitsched/orbit"
)

// queues describes the trees of queues: what each queue has, uses, lends and borrows of each resource that its tree divides.
type queues struct {
	Resources []resource `json:"resources"`
	// Rows are the queues, each behind its parent and before its children. At most mostRows are listed.
	Rows []queueRow `json:"rows"`
	// More counts the queues that are not listed.
	More int `json:"more,omitempty"`
}

// resource is a resource that at least one tree divides.
type resource struct {
	// ID is the name that queues give it, and Name is the name that people do.
	ID   string `json:"id"`
	Name string `json:"name"`
	Unit string `json:"unit,omitempty"`
}

// queueRow describes one queue.
type queueRow struct {
	ID     orbit.QueueID `json:"id"`
	Parent orbit.QueueID `json:"parent,omitempty"`
	// Depth is how many queues are above it.
	Depth  int   `json:"depth,omitempty"`
	Weight int64 `json:"weight"`
	// Share is the exact share, "infinite" if it is, and Permille the same in thousandths, which is left out then.
	Share    string   `json:"share"`
	Permille *float64 `json:"permille,omitempty"`
	// Living and Waiting count the capsules that name the queue itself, and those of them that are pending.
	Living  int `json:"living"`
	Waiting int `json:"waiting"`
	// Quotas are the amounts of each resource, by its ID.
	Quotas map[string]quota `json:"quotas"`
}

// quota is what a queue has and uses of one resource. Has is its own nominal amount with what its children lend. Of that, it
// uses Used less Borrowed itself, Lent is in use by other queues, and the rest is idle. If Available is below 0, more is
// used than there is, here or in a queue above.
type quota struct {
	Nominal   int64   `json:"nominal"`
	Has       int64   `json:"has"`
	Used      int64   `json:"used"`
	Lent      float64 `json:"lent,omitempty"`
	Borrowed  int64   `json:"borrowed,omitempty"`
	Available int64   `json:"available"`
	Most      int64   `json:"most"`
}

// makeQueues lists the trees of queues. If there are too many queues, those in which the most work waits come first, then those
// with the highest share, each with the queues above it.
func makeQueues(state *orbit.State) *queues {
	t := newForest(state)
	out := &queues{Resources: []resource{}, Rows: []queueRow{}, More: len(t.of)}
	if len(t.of) == 0 {
		return out
	}
	kept := t.choose(mostRows)
	divided := map[string]bool{}
	var walk func(ids []orbit.QueueID, depth int)
	walk = func(ids []orbit.QueueID, depth int) {
		for _, id := range ids {
			if !kept[id] {
				continue
			}
			row := t.row(id, depth)
			for name := range row.Quotas {
				divided[name] = true
			}
			out.Rows = append(out.Rows, row)
			walk(t.below[id], depth+1)
		}
	}
	walk(t.below[""], 0)
	out.More -= len(out.Rows)
	for _, name := range slices.SortedFunc(maps.Keys(divided), compareResources) {
		out.Resources = append(out.Resources, resourceOf(state, name))
	}
	return out
}

// forest is all queues of a state, and what each lends.
type forest struct {
	of map[orbit.QueueID]*orbit.QueueState
	// The children of each queue, in natural order; "": the roots.
	below map[orbit.QueueID][]orbit.QueueID
	lent  map[orbit.QueueID]map[string]float64
}

func newForest(state *orbit.State) *forest {
	f := &forest{map[orbit.QueueID]*orbit.QueueState{}, map[orbit.QueueID][]orbit.QueueID{}, map[orbit.QueueID]map[string]float64{}}
	for q := range state.Queues() {
		f.of[q.Queue.ID] = &q
		f.below[q.Queue.Parent] = append(f.below[q.Queue.Parent], q.Queue.ID)
	}
	for _, children := range f.below {
		slices.SortFunc(children, func(a, b orbit.QueueID) int { return natural(string(a), string(b)) })
	}
	for _, root := range f.below[""] {
		f.lend(root)
	}
	return f
}

// lend computes what the queues below one lend: together what these and the queue itself borrow, less what the queue borrows from
// above for them, and what the queue lends to others. No rule says which queue lends to which. So each lends in proportion to
// what it could.
func (f *forest) lend(id orbit.QueueID) {
	q := f.of[id]
	own, used, subtree := q.Own(), q.Used(), q.Subtree()
	lent, idle := map[string]float64{}, map[string]float64{}
	add := func(name string, has, uses, lendable int64) {
		lent[name] += float64(max(0, uses-has))
		idle[name] += float64(max(0, min(has-uses, lendable)))
	}
	for name := range used {
		lent[name] = f.lent[id][name] - float64(max(0, used[name]-subtree[name]))
		add(name, q.Queue.Nominal[name], own[name], q.Queue.Nominal[name])
	}
	children := map[orbit.QueueID]map[string]int64{}
	for _, child := range f.below[id] {
		c := f.of[child]
		has, uses, keeps := c.Subtree(), c.Used(), c.Local()
		children[child] = map[string]int64{}
		for name := range used {
			add(name, has[name], uses[name], has[name]-keeps[name])
			children[child][name] = max(0, min(has[name]-uses[name], has[name]-keeps[name]))
		}
	}
	for child, could := range children {
		f.lent[child] = map[string]float64{}
		for name, x := range could {
			if x > 0 && lent[name] > 0 {
				f.lent[child][name] = lent[name] * float64(x) / idle[name]
			}
		}
		f.lend(child)
	}
}

// choose returns the queues to list, at most n, with all queues above them.
func (f *forest) choose(most int) map[orbit.QueueID]bool {
	kept := map[orbit.QueueID]bool{}
	ids := slices.SortedFunc(maps.Keys(f.of), func(a, b orbit.QueueID) int {
		x, y := f.of[a], f.of[b]
		return cmp.Or(cmp.Compare(y.Waiting, x.Waiting), y.Share().Compare(x.Share()), natural(string(a), string(b)))
	})
	for _, id := range ids {
		var path []orbit.QueueID
		for q := id; q != "" && !kept[q]; q = f.of[q].Queue.Parent {
			path = append(path, q)
		}
		if len(kept)+len(path) > most {
			continue
		}
		for _, q := range path {
			kept[q] = true
		}
	}
	return kept
}

// row describes one queue.
func (f *forest) row(id orbit.QueueID, depth int) queueRow {
	q := f.of[id]
	share := q.Share()
	row := queueRow{ID: id, Parent: q.Queue.Parent, Depth: depth, Weight: max(1, q.Queue.Weight), Share: share.String(),
		Living: q.Living, Waiting: q.Waiting, Quotas: map[string]quota{}}
	if permille := 1000 * share.Float(); permille < 1e18 {
		row.Permille = &permille
	}
	used, has, borrowed, available, most := q.Used(), q.Subtree(), q.Borrowed(), q.Available(), q.Most()
	for name := range used {
		row.Quotas[name] = quota{q.Queue.Nominal[name], has[name], used[name], f.lent[id][name], borrowed[name], available[name], most[name]}
	}
	return row
}

// The beginnings of the names of resources that are no dimensions. See [orbit.Queue].
const (
	devicePrefix = "device/"
	extraPrefix  = "extra/"
)

// queueDimensions are the names that queues give to dimensions.
var queueDimensions = [orbit.Dimensions]string{"cpu", "memory", "disk", "slots", "dim4", "dim5", "dim6", "dim7"}

// compareResources orders the names of resources: devices first, which are the scarcest, then dimensions, then extras.
func compareResources(a, b string) int {
	rank := func(name string) int {
		if strings.HasPrefix(name, devicePrefix) {
			return -1
		}
		if d := slices.Index(queueDimensions[:], name); d >= 0 {
			return d
		}
		return orbit.Dimensions
	}
	return cmp.Or(cmp.Compare(rank(a), rank(b)), natural(a, b))
}

// resourceOf returns how the page shows a resource.
func resourceOf(state *orbit.State, name string) resource {
	if model, is := strings.CutPrefix(name, devicePrefix); is {
		return resource{name, model, "milli"}
	}
	if d := slices.Index(queueDimensions[:], name); d >= 0 {
		shown, unit := dimensionName(state, d)
		return resource{name, shown, unit}
	}
	return resource{name, strings.TrimPrefix(name, extraPrefix), ""}
}
