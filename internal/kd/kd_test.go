package kd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// wood is a forest, and beside it what must be in it.
type wood struct {
	forest Forest
	points map[int32]planted
	rng    *rand.Rand
	probe  Probe
	// How points lie: coordinates in use, how far apart, how many ranks.
	dims  []int
	reach []int64
	ranks uint64
	ids   int
}

type planted struct {
	tree int
	Point
}

// Coordinates are far from overflow by half.
var reaches = map[string][]int64{
	"all alike":   {0},
	"two":         {0, 1},
	"rare":        append(make([]int64, 40), 1, 2),
	"few":         {-1, 0, 1, 2, 3, 5, 8},
	"the extreme": {math.MinInt64 / 2, math.MinInt64/2 + 1, -1, 0, 1, math.MaxInt64/2 - 1, math.MaxInt64 / 2},
	"wide":        nil,
}

// Probes may say anything; it decides where trees are cut, and no more.
var probes = map[string]Probe{
	"none":    nil,
	"even":    func(int, *Vector, *Vector) float64 { return 0 },
	"useless": func(int, *Vector, *Vector) float64 { return math.Inf(1) },
	"endless": func(int, *Vector, *Vector) float64 { return math.Inf(-1) },
	"no number": func(int, *Vector, *Vector) float64 {
		return math.NaN()
	},
	"sum": func(_ int, least, _ *Vector) float64 { return float64(least[0]) + float64(least[3]) },
	"demand": func(_ int, least, most *Vector) float64 {
		if most[0] < 3 {
			return math.Inf(1)
		}
		return float64(least[Dims-1])
	},
}

func newWood(t *rapid.T) *wood {
	w := &wood{points: map[int32]planted{}, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "details"), 0))}
	w.probe = probes[rapid.SampledFrom([]string{"none", "even", "useless", "endless", "no number", "sum", "demand"}).Draw(t, "probe")]
	w.dims = rapid.SampledFrom([][]int{{0}, {0, 3}, {1, 3, Dims - 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}}).Draw(t, "coordinates")
	w.reach = reaches[rapid.SampledFrom([]string{"all alike", "two", "rare", "few", "the extreme", "wide"}).Draw(t, "reach")]
	w.ranks = rapid.SampledFrom([]uint64{1, 2, 20, math.MaxUint64}).Draw(t, "ranks")
	w.ids = rapid.SampledFrom([]int{1, 10, 40, 300}).Draw(t, "ids")
	w.clear(t)
	return w
}

// clear begins with nothing but some empty trees.
func (w *wood) clear(t *rapid.T) {
	w.forest.Clear(rapid.IntRange(1, 4).Draw(t, "trees"))
	clear(w.points)
}

func (w *wood) tree() int { return w.rng.IntN(w.forest.Trees()) }

// point invents one.
func (w *wood) point(id int32) Point {
	p := Point{ID: id, Rank: w.rng.Uint64N(w.ranks)}
	for _, d := range w.dims {
		if w.reach == nil {
			p.At[d] = w.rng.Int64N(math.MaxInt64) - math.MaxInt64/2
		} else {
			p.At[d] = w.reach[w.rng.IntN(len(w.reach))]
		}
	}
	return p
}

func (w *wood) put(tree int, p Point) {
	w.forest.Put(tree, &p, w.probe)
	w.points[p.ID] = planted{tree, p}
}

func often(t *rapid.T) int { return rapid.SampledFrom([]int{1, 1, 5, 30, 200}).Draw(t, "times") }

// puts puts points in, or moves them anywhere, to other trees too.
func (w *wood) puts(t *rapid.T) {
	for range often(t) {
		w.put(w.tree(), w.point(int32(w.rng.IntN(w.ids))))
	}
}

// moves moves points in their trees: in one coordinate, in rank, or not at all.
func (w *wood) moves(t *rapid.T) {
	for range often(t) {
		id := int32(w.rng.IntN(w.ids))
		was, ok := w.points[id]
		if !ok {
			continue
		}
		to := w.point(id)
		switch d := w.dims[w.rng.IntN(len(w.dims))]; w.rng.IntN(6) {
		case 0:
			was.Rank = to.Rank
		case 1:
		default:
			was.At[d] = to.At[d]
		}
		w.put(was.tree, was.Point)
	}
}

// removes takes points out, also such as are not in.
func (w *wood) removes(t *rapid.T) {
	for range often(t) {
		id := int32(w.rng.IntN(w.ids + 100))
		w.forest.Remove(id)
		delete(w.points, id)
	}
}

// build makes a tree of points that are in no other.
func (w *wood) build(t *rapid.T) {
	tree, points := w.tree(), []Point(nil)
	for id, p := range w.points {
		if p.tree == tree {
			delete(w.points, id)
		}
	}
	for range often(t) {
		id := int32(w.rng.IntN(w.ids))
		if _, there := w.points[id]; !there {
			p := w.point(id)
			points = append(points, p)
			w.points[id] = planted{tree, p}
		}
	}
	w.forest.Build(tree, points, w.probe)
}

// check holds everything that must be so against what is.
func (w *wood) check(t *rapid.T) {
	f := &w.forest
	reached, found := map[int32]bool{0: true}, map[int32]planted{}
	for tree := range f.Trees() {
		if root := f.Root(tree); root != 0 {
			require.Zero(t, f.boxes[root].parent)
			points := w.below(t, root, tree, reached)
			before := len(found)
			for _, p := range points {
				found[p.ID] = planted{tree, p}
			}
			require.Len(t, found, before+len(points), "a point is in one leaf")
		}
	}
	require.Len(t, found, len(w.points))
	for id := range int32(w.ids + 100) {
		is, there := found[id]
		if is != w.points[id] || there != f.Has(id) {
			require.Equal(t, w.points[id], is)
			require.Equal(t, there, f.Has(id))
		}
	}
	for _, at := range f.free {
		require.False(t, reached[at], "a free box is in no tree, and free once")
		reached[at] = true
	}
	require.Len(t, reached, len(f.boxes), "no box is lost")
	w.checkLive(t)
}

// checkLive checks that each coordinate is live or dead, and dead only if it is 0 everywhere.
func (w *wood) checkLive(t *rapid.T) {
	f := &w.forest
	all := append(slices.Clone(f.live), f.dead...)
	slices.Sort(all)
	require.Len(t, all, Dims)
	require.Len(t, slices.Compact(all), Dims)
	for _, p := range w.points {
		for _, d := range f.dead {
			require.Zero(t, p.At[d])
		}
	}
}

// below returns the points in a box, after comparing with them what it says of them.
func (w *wood) below(t *rapid.T, at int32, tree int, reached map[int32]bool) (points []Point) {
	b := w.forest.Box(at)
	require.False(t, reached[at], "a box is in one place")
	reached[at] = true
	require.Equal(t, tree, int(b.Tree))
	if b.Leaf() {
		points = w.leaf(t, at)
	} else {
		require.Empty(t, b.IDs)
		for _, part := range []int32{b.Left, b.Right} {
			require.Equal(t, at, w.forest.boxes[part].parent)
			in := w.below(t, part, tree, reached)
			for i := range in {
				if (part == b.Left) != b.below(&in[i]) {
					require.Fail(t, "a point is not where it belongs")
				}
			}
			points = append(points, in...)
		}
	}
	require.NotEmpty(t, points, "no box is empty")
	require.Equal(t, len(points), int(b.Size))
	least, most, rank := points[0].At, points[0].At, points[0].Rank
	for _, p := range points {
		rank = min(rank, p.Rank)
		for d, x := range p.At {
			least[d], most[d] = min(least[d], x), max(most[d], x)
		}
	}
	if least != b.Least || most != b.Most {
		require.Equal(t, least, b.Least)
		require.Equal(t, most, b.Most)
	}
	require.Equal(t, rank, b.Rank)
	return points
}

// leaf lists the points of a leaf. There are not too many, unless nothing tells them apart.
func (w *wood) leaf(t *rapid.T, at int32) (points []Point) {
	b := w.forest.Box(at)
	require.Len(t, b.Ranks, len(b.IDs))
	require.Len(t, b.At, len(b.IDs))
	alike := true
	for i, id := range b.IDs {
		if at != w.forest.leaf[id] {
			require.Equal(t, at, w.forest.leaf[id])
		}
		points = append(points, Point{At: b.At[i], Rank: b.Ranks[i], ID: id})
		alike = alike && b.At[i] == b.At[0] && b.Ranks[i] == b.Ranks[0]
	}
	require.True(t, alike || len(points) <= LeafSize, "%d points in a leaf can be told apart", len(points))
	return points
}

// Whatever is put in, moved and taken out: the forest has the points that it should, each in one leaf and where the
// cuts say; every box knows its extremes, smallest rank and size exactly; leaves are small; no box is lost.
func TestForestAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		w := newWood(t)
		t.Repeat(map[string]func(*rapid.T){
			"put": w.puts, "put more": w.puts, "move": w.moves, "move more": w.moves, "remove": w.removes, "build": w.build,
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
					w.clear(t)
				}
			},
			"": w.check,
		})
	})
}
