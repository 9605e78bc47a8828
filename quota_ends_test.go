package orbit

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/orbitsched/orbit/internal/scale"
)

// Evictions between queues come to an end: in small worlds every order of them is walked to its end, with arithmetic alone.

// pair is an amount of each of two resources.
type pair [2]int

func (p pair) plus(n int, o pair) pair { return pair{p[0] + n*o[0], p[1] + n*o[1]} }

func (p pair) within(o pair) bool { return p[0] <= o[0] && p[1] <= o[1] }

// endsWorld is one level of queues below a root, with any number of capsules of each queue and size that wait.
type endsWorld struct {
	nominal []pair
	weight  []int
	sizes   []pair
	nodes   []pair
	root    pair // the root's own quota

	// All ways to fill each node: how many capsules of each queue and size; and those that are parts of each of them.
	packings [][][]int
	parts    [][][]int
}

// ratio is a share.
type ratio struct{ over, below int }

func (r ratio) compare(o ratio) int { return r.over*o.below - o.over*r.below }

func (w *endsWorld) kinds() int { return len(w.nominal) * len(w.sizes) }

func (w *endsWorld) size(kind int) pair { return w.sizes[kind%len(w.sizes)] }

func (w *endsWorld) queue(kind int) int { return kind / len(w.sizes) }

// whole is all that the tree has.
func (w *endsWorld) whole() pair {
	sum := w.root
	for _, n := range w.nominal {
		sum = sum.plus(1, n)
	}
	return sum
}

func (w *endsWorld) share(q int, used pair) ratio {
	most := ratio{0, 1}
	for r, x := range used {
		if over := x - w.nominal[q][r]; over > 0 {
			if of := (ratio{over, w.whole()[r] * w.weight[q]}); of.compare(most) > 0 {
				most = of
			}
		}
	}
	return most
}

// pack lists all ways to fill a room with capsules of this kind and those after it.
func (w *endsWorld) pack(kind int, room pair) [][]int {
	if kind == w.kinds() {
		return [][]int{make([]int, kind)}
	}
	var out [][]int
	for n := 0; (pair{}).plus(n, w.size(kind)).within(room); n++ {
		for _, rest := range w.pack(kind+1, room.plus(-n, w.size(kind))) {
			rest[kind] = n
			out = append(out, rest)
		}
	}
	return out
}

func (w *endsWorld) prepare() {
	w.packings, w.parts = nil, nil
	for _, room := range w.nodes {
		all := w.pack(0, room)
		parts := make([][]int, len(all))
		for i, a := range all {
			for j, b := range all {
				if isPart(b, a) {
					parts[i] = append(parts[i], j)
				}
			}
		}
		w.packings, w.parts = append(w.packings, all), append(w.parts, parts)
	}
}

func isPart(b, a []int) bool {
	for k := range a {
		if b[k] > a[k] {
			return false
		}
	}
	return true
}

// endsState says which packing each node has.
type endsState [3]uint16

func (w *endsWorld) used(s endsState) (of []pair, all pair) {
	of = make([]pair, len(w.nominal))
	for n := range w.nodes {
		for k, count := range w.packings[n][s[n]] {
			if count > 0 {
				of[w.queue(k)] = of[w.queue(k)].plus(count, w.size(k))
				all = all.plus(count, w.size(k))
			}
		}
	}
	return of, all
}

func (w *endsWorld) on(n int, s endsState) (sum pair) {
	for k, count := range w.packings[n][s[n]] {
		sum = sum.plus(count, w.size(k))
	}
	return sum
}

// next lists the states that one placement leads to, with victims of other queues or without any. Stays is what is left of each node.
func (w *endsWorld) next(s endsState) (out []endsState) {
	var choose func(n int, stays endsState)
	choose = func(n int, stays endsState) {
		if n < len(w.nodes) {
			for _, part := range w.parts[n][s[n]] {
				stays[n] = uint16(part)
				choose(n+1, stays)
			}
			return
		}
		for kind := range w.kinds() {
			for at := range w.nodes {
				if w.may(s, stays, kind, at) {
					to := stays
					packing := slices.Clone(w.packings[at][stays[at]])
					packing[kind]++
					to[at] = uint16(slices.IndexFunc(w.packings[at], func(p []int) bool { return slices.Equal(p, packing) }))
					out = append(out, to)
				}
			}
		}
	}
	choose(0, endsState{})
	return out
}

// may reports whether a capsule of a kind may be placed on a node if all goes that does not stay: it fits in the node and the quota,
// each victim is in its way, each queue of a victim borrowed before, and would if this victim stayed, and has no lower share afterwards, or
// the same and less than before.
func (w *endsWorld) may(s, stays endsState, kind, at int) bool {
	size := w.size(kind)
	before, _ := w.used(s)
	after, all := w.used(stays)
	if !w.on(at, stays).plus(1, size).within(w.nodes[at]) || !w.quota(all.plus(1, size), size) {
		return false
	}
	mine := w.share(w.queue(kind), after[w.queue(kind)].plus(1, size))
	for n := range w.nodes {
		for k, count := range w.packings[n][s[n]] {
			if count == w.packings[n][stays[n]][k] {
				continue
			}
			b := w.queue(k)
			borrowed := size[0] > 0 && before[b][0] > w.nominal[b][0] || size[1] > 0 && before[b][1] > w.nominal[b][1]
			theirs := w.share(b, after[b])
			stayed := after[b].plus(1, w.size(k))
			borrowed = borrowed && (size[0] > 0 && stayed[0] > w.nominal[b][0] || size[1] > 0 && stayed[1] > w.nominal[b][1])
			if order := mine.compare(theirs); b == w.queue(kind) || !borrowed || order > 0 || order == 0 && theirs.compare(w.share(b, before[b])) >= 0 {
				return false
			}
			back := w.on(n, stays).plus(1, w.size(k)).plus(btoi(n == at), size)
			if back.within(w.nodes[n]) && w.quota(all.plus(1, size).plus(1, w.size(k)), size) {
				return false // it would be spared
			}
		}
	}
	return true
}

// quota reports whether all may be used by what asks for a size.
func (w *endsWorld) quota(all, size pair) bool {
	return (size[0] == 0 || all[0] <= w.whole()[0]) && (size[1] == 0 || all[1] <= w.whole()[1])
}

// round searches for a way from a state to itself, from every state that there is. It returns nil if there is none, and how
// many states and steps it has seen.
func (w *endsWorld) round() (cycle []endsState, states, steps int) {
	w.prepare()
	const entered, left = 1, 2
	seen := map[endsState]byte{}
	type frame struct {
		at   endsState
		next []endsState
	}
	var path []frame
	enter := func(s endsState) {
		seen[s] = entered
		path = append(path, frame{s, w.next(s)})
	}
	var start func(n int, s endsState)
	start = func(n int, s endsState) {
		if n < len(w.nodes) {
			for i := range w.packings[n] {
				s[n] = uint16(i)
				start(n+1, s)
			}
			return
		}
		if _, all := w.used(s); seen[s] != 0 || cycle != nil || !all.within(w.whole()) {
			return
		}
		for enter(s); len(path) > 0 && cycle == nil; {
			top := &path[len(path)-1]
			if len(top.next) == 0 {
				seen[top.at] = left
				path = path[:len(path)-1]
				continue
			}
			to := top.next[0]
			top.next = top.next[1:]
			steps++
			switch seen[to] {
			case 0:
				enter(to)
			case entered:
				for _, f := range path[slices.IndexFunc(path, func(f frame) bool { return f.at == to }):] {
					cycle = append(cycle, f.at)
				}
			}
		}
	}
	start(0, endsState{})
	return cycle, len(seen), steps
}

func (w *endsWorld) text(s endsState) string {
	var b strings.Builder
	for n := range w.nodes {
		fmt.Fprintf(&b, " [")
		for k, count := range w.packings[n][s[n]] {
			for range count {
				fmt.Fprintf(&b, " %c%v", 'a'+w.queue(k), w.size(k))
			}
		}
		fmt.Fprintf(&b, " ]")
	}
	return b.String()
}

// TestReclaimsEndOnOneLevel: in no small world with one level of queues do evictions between queues, and placements in what they
// leave free, lead back to where they began. Within a queue nobody is evicted here: see TestPriorityInAQueueMayRunRound.
func TestReclaimsEndOnOneLevel(t *testing.T) {
	scale.Sequential(t)
	t.Parallel()
	one := []pair{{1, 0}, {2, 0}, {3, 0}}
	two := []pair{{1, 0}, {1, 2}, {2, 1}}
	nominals := [][]pair{
		{{2, 1}, {1, 2}}, {{1, 0}, {1, 1}, {1, 0}},
		{{0, 0}, {0, 0}}, {{1, 1}, {0, 0}}, {{3, 0}, {3, 3}},
		{{0, 0}, {0, 0}, {0, 0}}, {{2, 1}, {1, 0}, {0, 0}},
		{{0, 0}, {0, 0}, {0, 0}, {0, 0}}, {{1, 0}, {0, 1}, {0, 0}, {1, 1}}, {{2, 0}, {0, 0}, {1, 0}, {0, 0}},
	}
	rooms := [][]pair{{{3, 3}}, {{3, 3}, {2, 2}}, {{2, 2}, {2, 2}, {2, 2}}, {{4, 2}, {2, 1}}, {{3, 2}, {3, 2}}, {{3, 3}, {2, 2}, {2, 2}}, {{3, 3}, {3, 3}, {3, 3}}}
	worlds, states, steps := 0, 0, 0
	for _, nominal := range nominals[:min(scale.Of(5, 14), len(nominals))] { // a stress run at half its size sees 7 and 5 of them
		for _, nodes := range rooms[:min(scale.Of(2, 10), len(rooms))] {
			for _, weights := range [][]int{{1, 1, 1, 1}, {1, 2, 3, 1}, {3, 2, 1, 2}} {
				for _, sizes := range [][]pair{one, two} {
					for _, slack := range []int{0, 1, 9} {
						w := &endsWorld{nominal: nominal, weight: weights[:len(nominal)], sizes: sizes, nodes: nodes}
						all := pair{}
						for _, n := range nodes {
							all = all.plus(1, n)
						}
						for r := range w.root {
							w.root[r] = max(0, all[r]-slack-w.whole()[r])
						}
						cycle, s, n := w.round()
						worlds, states, steps = worlds+1, states+s, steps+n
						for _, at := range cycle {
							t.Log(w.text(at))
						}
						require.Empty(t, cycle, "queues %v weights %v nodes %v root %v", nominal, weights, nodes, w.root)
					}
				}
			}
		}
	}
	t.Logf("%d worlds, %d states, %d steps", worlds, states, steps)
}

// ---- the ledger itself, at random ----

// walk is a ledger with a random tree of queues, and capsules that are placed by evictions of those of other queues.
type walk struct {
	court
	r *rand.Rand
	// All capsules have one priority.
	capsules []CapsuleID
	nodes    []NodeID
}

func newWalk(t *testing.T, r *rand.Rand, levels int) *walk {
	w := &walk{court: court{t, &MemoryLedger{Bounds: Limits{History: 1}}}, r: r}
	var do []Commitment
	queues := []QueueID{"root"}
	for i := range 3 + r.IntN(4) {
		q := queueOf(QueueID(fmt.Sprint("q", i)), "root", int64(r.IntN(4)), weighs(int64(r.IntN(3))))
		if levels > 2 && i > 1 && r.IntN(3) > 0 {
			q.Parent = queues[1+r.IntN(len(queues)-1)]
		}
		if r.IntN(3) == 0 {
			lends(int64(r.IntN(3)))(&q)
		}
		if r.IntN(4) == 0 {
			borrows(int64(1 + r.IntN(4)))(&q)
		}
		if r.IntN(3) == 0 {
			q.Nominal["memory"] = int64(r.IntN(3))
		}
		queues, do = append(queues, q.ID), append(do, PutQueue{q})
	}
	do = slices.Insert(do, 0, Commitment(PutQueue{queueOf("root", "", int64(r.IntN(8)), has("memory", int64(r.IntN(6))))}))
	for i := range 1 + r.IntN(3) {
		w.nodes = append(w.nodes, NodeID(fmt.Sprint("n", i)))
		do = append(do, PutNode{Node{ID: w.nodes[i], Capacity: Resources{CPU: int64(2 + r.IntN(3)), Memory: int64(2 + r.IntN(3))}}})
	}
	for i := range 8 + r.IntN(8) {
		id := CapsuleID(fmt.Sprint("c", i))
		w.capsules = append(w.capsules, id)
		do = append(do, submitOf(inQueue(queues[r.IntN(len(queues))], int64(1+r.IntN(3)), remembers(int64(r.IntN(3)))), id))
	}
	w.commits(do...)
	return w
}

// step tries to place a capsule that waits, with some victims of other queues, and reports whether it is placed and evicts anybody.
func (w *walk) step() (placed, evicts bool) {
	s := w.now()
	c := s.Capsule(w.capsules[w.r.IntN(len(w.capsules))])
	if !c.Pending() {
		return false, false
	}
	p := Proposal{View: s.Revision()}
	for _, i := range w.r.Perm(len(w.capsules)) {
		v := s.Capsule(w.capsules[i])
		if v.Placed() && v.Spec.Queue != c.Spec.Queue && w.r.IntN(3) > 0 {
			e := evictionOf(s, v.ID)
			e.For = c.ID
			p.Do = append(p.Do, e)
		}
	}
	p.Do = append(p.Do, placeOn(c.ID, w.nodes[w.r.IntN(len(w.nodes))]))
	if _, err := w.Propose(bg, p); err != nil {
		return false, false
	}
	now := w.now()
	for _, do := range p.Do {
		if e, ok := do.(Evict); ok && now.Capsule(e.Capsule).Pending() {
			evicts = true
		}
	}
	return true, evicts
}

// where says where everything is.
func (w *walk) where() string {
	var b strings.Builder
	for _, id := range w.capsules {
		fmt.Fprint(&b, w.now().Capsule(id).Node, " ")
	}
	return b.String()
}

// TestReclaimsEndAtRandom: on ledgers with random trees, of one level and of several, random placements that evict the capsules of other
// queues never come back to a place where they were. On several levels this is a sample: a million placements have a cycle (rfc queues).
func TestReclaimsEndAtRandom(t *testing.T) {
	t.Parallel()
	for _, levels := range []int{2, 4} {
		t.Run(fmt.Sprint(levels, " levels"), func(t *testing.T) {
			t.Parallel()
			steps, reclaims, walks := 0, 0, 0
			for seed := uint64(0); steps < scale.Of(1_400, 100_000); seed++ { // ORBIT_STRESS_SCALE=10: a million
				w := newWalk(t, rand.New(rand.NewPCG(seed, uint64(levels))), levels)
				walks++
				been := map[string]int{w.where(): 0}
				var path []string
				for idle := 0; idle < 60; idle++ {
					placed, evicts := w.step()
					if !placed {
						continue
					}
					idle, steps, reclaims = 0, steps+1, reclaims+btoi(evicts)
					at := w.where()
					path = append(path, at)
					if first, again := been[at]; again {
						for q := range w.now().Queues() {
							t.Logf("%+v", q.Queue)
						}
						for c := range w.now().Capsules() {
							t.Log(c.ID, c.Spec.Queue, c.Spec.Envelope.Reservation)
						}
						t.Fatalf("seed %d: a cycle from step %d to %d:\n%s", seed, first, len(path), strings.Join(path, "\n"))
					}
					been[at] = len(path)
				}
			}
			t.Logf("%d walks, %d placements, %d of them with evictions", walks, steps, reclaims)
		})
	}
}
