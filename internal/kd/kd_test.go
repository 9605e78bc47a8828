package kd

import (
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// garden is a tree, and beside it what must be in it.
type garden struct {
	tree   Tree
	points map[int32]Point
	rng    *rand.Rand
	probe  Probe
	// How points lie: coordinates in use, how far apart, how many ranks.
	dims  []int
	reach []int64
	ranks uint64
	kinds int
	ids   int
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
	"even":    func(Kinds, *Vector, *Vector) float64 { return 0 },
	"useless": func(Kinds, *Vector, *Vector) float64 { return math.Inf(1) },
	"endless": func(Kinds, *Vector, *Vector) float64 { return math.Inf(-1) },
	"sum":     func(_ Kinds, least, _ *Vector) float64 { return float64(least[0]) + float64(least[3]) },
	"demand": func(kinds Kinds, least, most *Vector) float64 {
		if most[0] < 3 || kinds&5 == 0 {
			return math.Inf(1)
		}
		return float64(least[Dims-1])
	},
}

func newGarden(t *rapid.T) *garden {
	g := &garden{points: map[int32]Point{}, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "details"), 0))}
	g.probe = probes[rapid.SampledFrom([]string{"none", "even", "useless", "endless", "sum", "demand"}).Draw(t, "probe")]
	g.dims = rapid.SampledFrom([][]int{{0}, {0, 3}, {1, 3, Dims - 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}}).Draw(t, "coordinates")
	g.reach = reaches[rapid.SampledFrom([]string{"all alike", "two", "rare", "few", "the extreme", "wide"}).Draw(t, "reach")]
	g.ranks = rapid.SampledFrom([]uint64{1, 2, 20, math.MaxUint64}).Draw(t, "ranks")
	g.kinds = rapid.SampledFrom([]int{1, 3, 200}).Draw(t, "kinds")
	g.ids = rapid.SampledFrom([]int{1, 10, 40, 300}).Draw(t, "ids")
	g.clear(t)
	return g
}

// clear begins with nothing.
func (g *garden) clear(t *rapid.T) {
	g.tree.Clear()
	clear(g.points)
}

// opened tells the tree that it is searched much, so that it is built anew in time.
func (g *garden) opened(t *rapid.T) { g.tree.Opened(often(t)) }

// rebuild builds the tree anew from what is in it.
func (g *garden) rebuild(*rapid.T) { g.tree.Rebuild(g.probe) }

// point invents one.
func (g *garden) point(id int32) Point {
	p := Point{ID: id, Rank: g.rng.Uint64N(g.ranks), Kind: int32(g.rng.IntN(g.kinds))}
	for _, d := range g.dims {
		if g.reach == nil {
			p.At[d] = g.rng.Int64N(math.MaxInt64) - math.MaxInt64/2
		} else {
			p.At[d] = g.reach[g.rng.IntN(len(g.reach))]
		}
	}
	return p
}

func (g *garden) put(t *rapid.T, p Point) {
	was, there := g.points[p.ID]
	require.Equal(t, !there || was != p, g.tree.Put(&p, g.probe), "whether that changed anything")
	g.points[p.ID] = p
}

func often(t *rapid.T) int { return rapid.SampledFrom([]int{1, 1, 5, 30, 200}).Draw(t, "times") }

// puts puts points in, or moves them anywhere.
func (g *garden) puts(t *rapid.T) {
	for range often(t) {
		g.put(t, g.point(int32(g.rng.IntN(g.ids))))
	}
}

// moves moves points: in one coordinate, in rank, in kind, or not at all.
func (g *garden) moves(t *rapid.T) {
	for range often(t) {
		id := int32(g.rng.IntN(g.ids))
		was, ok := g.points[id]
		if !ok {
			continue
		}
		to := g.point(id)
		switch d := g.dims[g.rng.IntN(len(g.dims))]; g.rng.IntN(8) {
		case 0:
			was.Rank = to.Rank
		case 1:
			was.Kind = to.Kind
		case 2:
		default:
			was.At[d] = to.At[d]
		}
		g.put(t, was)
	}
}

// removes takes points out, also such as are not in.
func (g *garden) removes(t *rapid.T) {
	for range often(t) {
		id := int32(g.rng.IntN(g.ids + 100))
		g.tree.Remove(id)
		delete(g.points, id)
	}
}

// build replaces all points.
func (g *garden) build(t *rapid.T) {
	clear(g.points)
	var points []Point
	for range often(t) {
		id := int32(g.rng.IntN(g.ids))
		if _, there := g.points[id]; !there {
			points = append(points, g.point(id))
			g.points[id] = points[len(points)-1]
		}
	}
	g.tree.Build(slices.Clone(points), g.probe)
}

// check holds everything that must be so against what is.
func (g *garden) check(t *rapid.T) {
	f := &g.tree
	if require.Len(t, g.points, int(f.size)); rapid.IntRange(0, 3).Draw(t, "look") > 0 {
		return // boxes are set right after several changes at once
	}
	reached, found := map[int32]bool{0: true}, map[int32]Point{}
	if root := f.Root(); root != 0 {
		require.Zero(t, f.boxes[root].parent)
		points := g.below(t, root, reached)
		for _, p := range points {
			found[p.ID] = p
		}
		require.Len(t, found, len(points), "a point is in one leaf")
	}
	require.Len(t, found, len(g.points))
	for id := range int32(g.ids + 100) {
		is, there := found[id]
		if is != g.points[id] || there != f.Has(id) {
			require.Equal(t, g.points[id], is)
			require.Equal(t, there, f.Has(id))
		}
	}
	for _, at := range f.free {
		require.False(t, reached[at], "a free box is in no tree, and free once")
		reached[at] = true
	}
	require.Len(t, reached, max(1, len(f.boxes)), "no box is lost")
	g.checkLive(t)
}

// checkLive checks that each coordinate is live or dead, and dead only if it is the same everywhere.
func (g *garden) checkLive(t *rapid.T) {
	f := &g.tree
	if f.root == 0 {
		return
	}
	all := append(slices.Clone(f.live), f.dead...)
	slices.Sort(all)
	require.Len(t, all, Dims)
	require.Len(t, slices.Compact(all), Dims)
	for _, p := range g.points {
		for _, d := range f.dead {
			if p.At[d] != f.base[d] {
				require.Equal(t, f.base[d], p.At[d])
			}
		}
	}
}

// below returns the points in a box, after comparing with them what it says of them.
func (g *garden) below(t *rapid.T, at int32, reached map[int32]bool) (points []Point) {
	b := g.tree.Box(at)
	require.False(t, reached[at], "a box is in one place")
	reached[at] = true
	if b.Leaf() {
		points = g.leaf(t, at)
	} else {
		require.Empty(t, b.Points)
		for _, part := range []int32{b.Left, b.Right} {
			require.Equal(t, at, g.tree.boxes[part].parent)
			in := g.below(t, part, reached)
			for i := range in {
				if (part == b.Left) != b.cut().below(&in[i]) {
					require.Fail(t, "a point is not where it belongs")
				}
			}
			points = append(points, in...)
		}
	}
	require.NotEmpty(t, points, "no box is empty")
	require.Zero(t, b.stale)
	least, most, rank, kinds := points[0].At, points[0].At, points[0].Rank, Kinds(0)
	for _, p := range points {
		rank, kinds = min(rank, p.Rank), kinds|KindsOf(p.Kind)
		for d, x := range p.At {
			least[d], most[d] = min(least[d], x), max(most[d], x)
		}
	}
	if least != b.Least || most != b.Most {
		require.Equal(t, least, b.Least)
		require.Equal(t, most, b.Most)
	}
	require.Equal(t, rank, b.Rank)
	require.Equal(t, kinds, b.Kinds)
	return points
}

// leaf lists the points of a leaf. There are not too many, unless nothing tells them apart.
func (g *garden) leaf(t *rapid.T, at int32) (points []Point) {
	points = g.tree.Box(at).Points
	alike := true
	for i := range points {
		p := &points[i]
		if g.tree.where[p.ID] != (place{at, int32(i)}) {
			require.Equal(t, place{at, int32(i)}, g.tree.where[p.ID])
		}
		alike = alike && p.At == points[0].At && p.Rank == points[0].Rank
	}
	require.True(t, alike || len(points) <= LeafSize, "%d points in a leaf can be told apart", len(points))
	return slices.Clone(points)
}

// Whatever is put in, moved and taken out: the tree has the points that it should, each in one leaf and where the
// cuts say; every box knows its extremes, smallest rank and kinds exactly; leaves are small; no box is lost.
func TestTreeAgainstMap(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		g := newGarden(t)
		t.Repeat(map[string]func(*rapid.T){
			"put": g.puts, "put more": g.puts, "move": g.moves, "move more": g.moves, "remove": g.removes, "build": g.build, "rebuild": g.rebuild, "opened": g.opened,
			"clear": func(t *rapid.T) {
				if rapid.IntRange(0, 4).Draw(t, "really") == 0 {
					g.clear(t)
				}
			},
			"": g.check,
		})
	})
}

// Points that are all alike share a leaf, however many they are; as soon as they can be told apart they are, also when
// one has moved within its leaf, and when a probe sees no difference or rates everything as bad as can be.
func TestPointsAlikeShareALeaf(t *testing.T) {
	for name, probe := range probes {
		t.Run(name, func(t *testing.T) {
			var tree Tree
			for id := range int32(3 * LeafSize) {
				tree.Put(&Point{ID: id, At: Vector{4: 7}}, probe)
			}
			require.True(t, tree.Box(tree.Root()).Leaf())
			tree.Put(&Point{ID: 5, At: Vector{4: 8}}, probe)
			require.False(t, tree.Box(tree.Root()).Leaf())
			tree.Put(&Point{ID: 5, At: Vector{4: 7}}, probe)
			for id := range int32(3 * LeafSize) {
				tree.Put(&Point{ID: id, At: Vector{4: int64(id)}}, probe)
			}
			checkLeaves(t, &tree, tree.Root())
		})
	}
}

func checkLeaves(t *testing.T, tree *Tree, at int32) {
	if b := tree.Box(at); b.Leaf() {
		require.LessOrEqual(t, len(b.Points), LeafSize)
	} else {
		checkLeaves(t, tree, b.Left)
		checkLeaves(t, tree, b.Right)
	}
}
