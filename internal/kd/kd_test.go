package kd

import (
	"fmt"
	"maps"
	"math"
	"math/bits"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/orbitsched/orbit/internal/scale"
)

// garden is a tree, and beside it what must be in it.
type garden struct {
	tree   Tree
	points map[int32]Point
	// Trees that have gone off from this one, and what must stay in them.
	forks []fork
	// By version of a box that was seen: its points.
	versions map[uint64]string
	rng      *rand.Rand
	probe    Probe
	// How points lie: coordinates in use, how far apart, how many ranks.
	dims  []int
	reach []int64
	ranks uint64
	kinds int
	ids   int
}

type fork struct {
	tree   Tree
	points map[int32]Point
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
	g := &garden{points: map[int32]Point{}, versions: map[uint64]string{}, rng: rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "details"), 0))}
	g.probe = probes[rapid.SampledFrom([]string{"none", "even", "useless", "endless", "sum", "demand"}).Draw(t, "probe")]
	g.dims = rapid.SampledFrom([][]int{{0}, {0, 3}, {1, 3, Dims - 1}, {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19}}).Draw(t, "coordinates")
	g.reach = reaches[rapid.SampledFrom([]string{"all alike", "two", "rare", "few", "the extreme", "wide"}).Draw(t, "reach")]
	g.ranks = rapid.SampledFrom([]uint64{1, 2, 20, math.MaxUint64}).Draw(t, "ranks")
	g.kinds = rapid.SampledFrom([]int{1, 3, 200}).Draw(t, "kinds")
	g.ids = rapid.SampledFrom([]int{1, 10, 40, 300}).Draw(t, "ids")
	g.tree.ByHash = rapid.Bool().Draw(t, "by hash")
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
	p := Point{ID: id, Rank: g.rng.Uint64N(g.ranks), Hash: g.rng.Uint64N(g.ranks), Kind: int32(g.rng.IntN(g.kinds))}
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
	if there {
		require.Equal(t, was != p, g.tree.Move(&was, &p, g.probe), "whether that changed anything")
	} else {
		g.tree.Put(&p, g.probe)
	}
	g.tree.Age(g.probe)
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
			was.Kind, was.Hash = to.Kind, to.Hash
		case 2:
		default:
			was.At[d] = to.At[d]
		}
		g.put(t, was)
	}
}

// removes takes points out.
func (g *garden) removes(t *rapid.T) {
	for range often(t) {
		if p, there := g.points[int32(g.rng.IntN(g.ids))]; there {
			g.tree.Remove(&p)
			delete(g.points, p.ID)
		}
	}
}

// fork lets a second tree go off from this one, or this one from that.
func (g *garden) fork(t *rapid.T) {
	other := fork{g.tree.Fork(), maps.Clone(g.points)}
	if rapid.Bool().Draw(t, "go on with the second") {
		g.tree, other.tree = other.tree, g.tree
	}
	if len(g.forks) < 3 {
		g.forks = append(g.forks, other)
	} else {
		g.forks[g.rng.IntN(3)] = other
	}
}

// turn goes on with another of the trees.
func (g *garden) turn(t *rapid.T) {
	if len(g.forks) > 0 {
		f := &g.forks[g.rng.IntN(len(g.forks))]
		g.tree, f.tree = f.tree, g.tree
		g.points, f.points = f.points, g.points
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

// check holds everything that must be so against what is, in one of the trees.
func (g *garden) check(t *rapid.T) {
	require.Equal(t, len(g.points), g.tree.Size())
	if rapid.IntRange(0, 3).Draw(t, "look") == 0 { // boxes are set right after several changes at once
		g.checkTree(t, &g.tree, g.points)
	}
	for i := range g.forks {
		if rapid.IntRange(0, 15).Draw(t, "look elsewhere") == 0 {
			g.checkTree(t, &g.forks[i].tree, g.forks[i].points)
		}
	}
}

func (g *garden) checkTree(t require.TestingT, f *Tree, want map[int32]Point) {
	reached, found := map[*Box]bool{}, map[int32]Point{}
	if root := f.Root(); root != nil {
		points := g.below(t, root, reached)
		for _, p := range points {
			require.True(t, f.Has(&p))
			found[p.ID] = p
		}
		require.Len(t, found, len(points), "a point is in one leaf")
	}
	require.Len(t, found, len(want))
	for id, p := range want {
		if found[id] != p {
			require.Equal(t, p, found[id])
		}
	}
	if f.room != nil {
		for _, b := range f.room.boxes {
			require.False(t, reached[b], "a free box is in no tree, and free once")
			reached[b] = true
		}
	}
	checkLive(t, f, want)
}

// checkLive checks that each coordinate is live or dead, and dead only if it is the same everywhere.
func checkLive(t require.TestingT, f *Tree, points map[int32]Point) {
	if f.root == nil {
		return
	}
	all := slices.Clone(f.dims[:])
	slices.Sort(all)
	require.Len(t, slices.Compact(all), Dims)
	for _, p := range points {
		for _, d := range f.dims[f.live:] {
			if p.At[d] != f.base[d] {
				require.Equal(t, f.base[d], p.At[d])
			}
		}
	}
}

// below returns the points in a box, after comparing with them what it says of them.
func (g *garden) below(t require.TestingT, b *Box, reached map[*Box]bool) (points []Point) {
	require.False(t, reached[b], "a box is in one place")
	reached[b] = true
	if b.Leaf() {
		points = leaf(t, b, g.tree.ByHash)
	} else {
		require.Empty(t, b.Points)
		for _, part := range []*Box{b.Left, b.Right} {
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
	g.checkVersion(t, b, points)
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

// checkVersion checks that boxes of one version, in whatever tree and whenever, have the same points.
func (g *garden) checkVersion(t require.TestingT, b *Box, points []Point) {
	sorted := slices.Clone(points)
	slices.SortFunc(sorted, func(a, b Point) int { return int(a.ID - b.ID) })
	text := fmt.Sprint(sorted)
	if was, known := g.versions[b.Version]; known && was != text {
		require.Equal(t, was, text)
	}
	g.versions[b.Version] = text
}

// leaf lists the points of a leaf. There are not too many, unless nothing tells them apart.
func leaf(t require.TestingT, b *Box, byHash bool) []Point {
	alike := true
	for i := range b.Points {
		alike = alike && b.Points[i].At == b.Points[0].At && (byHash || b.Points[i].Rank == b.Points[0].Rank) && (!byHash || b.Points[i].Hash == b.Points[0].Hash)
	}
	require.True(t, alike || len(b.Points) <= LeafSize, "%d points in a leaf can be told apart", len(b.Points))
	return slices.Clone(b.Points)
}

// Whatever is put in, moved and taken out: the tree has the points that it should, each in one leaf and where the
// cuts say; every box knows its extremes, smallest rank and kinds exactly; leaves are small; no box is lost.
func TestTreeAgainstMap(t *testing.T) {
	usual := spare
	defer func() { spare = usual }()
	rapid.Check(t, func(t *rapid.T) {
		spare = rapid.SampledFrom([]int{usual, -2, -4}).Draw(t, "spare")
		g := newGarden(t)
		t.Repeat(map[string]func(*rapid.T){
			"put": g.puts, "put more": g.puts, "move": g.moves, "move more": g.moves, "remove": g.removes, "build": g.build, "rebuild": g.rebuild, "opened": g.opened, "fork": g.fork, "turn": g.turn,
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
			at := func(id int32, v int64) *Point { return &Point{ID: id, At: Vector{4: v}} }
			for id := range int32(3 * LeafSize) {
				tree.Put(at(id, 7), probe)
			}
			require.True(t, tree.Root().Leaf())
			tree.Move(at(5, 7), at(5, 8), probe)
			require.False(t, tree.Root().Leaf())
			tree.Move(at(5, 8), at(5, 7), probe)
			for id := range int32(3 * LeafSize) {
				tree.Move(at(id, 7), at(id, int64(id)), probe)
			}
			checkLeaves(t, tree.Root())
		})
	}
}

func checkLeaves(t *testing.T, b *Box) {
	if b.Leaf() {
		require.LessOrEqual(t, len(b.Points), LeafSize)
	} else {
		checkLeaves(t, b.Left)
		checkLeaves(t, b.Right)
	}
}

// A point that moves in a fork makes it copy one way from the root to a leaf, or two, whatever the size of the tree; a
// second move on the same way copies nothing, and neither does a tree that nothing has gone off from.
func TestForksCopyOneWay(t *testing.T) {
	for _, size := range []int{1_000, 64_000} {
		rng := rand.New(rand.NewPCG(1, 2))
		points := make([]Point, size)
		for i := range points {
			points[i] = Point{ID: int32(i), Rank: uint64(i), At: Vector{rng.Int64N(1000), rng.Int64N(1000)}}
		}
		var tree Tree
		tree.Build(points, nil)
		fork := tree.Fork()
		most, depth := 0, 2*bits.Len(uint(size/LeafSize))+6
		for i := range 100 {
			before, p := fork.Copied(), points[i]
			p.At[0]++
			fork.Move(&points[i], &p, nil)
			most = max(most, fork.Copied()-before)
			before, points[i] = fork.Copied(), p
			p.At[5]++
			fork.Move(&points[i], &p, nil)
			points[i] = p
			require.Equal(t, before, fork.Copied())
		}
		t.Logf("%d points: at most %d boxes copied for a point", size, most)
		require.LessOrEqual(t, most, depth)
		alone := Tree{}
		alone.Build(points, nil)
		p := points[7]
		p.At[1]++
		alone.Move(&points[7], &p, nil)
		require.Zero(t, alone.Copied())
	}
}

// Points that cross one cut in the order of the other cuts do not turn the tree into a list. Its leaves stay shallow, and
// a move touches few boxes; both grow only with the logarithm of the number of points.
func TestMovesInOrderKeepLeavesShallow(t *testing.T) {
	scale.Sequential(t)
	probe := func(_ Kinds, least, _ *Vector) float64 { return float64(least[0]) }
	for _, by := range []string{"coordinate", "rank", "hash"} {
		for _, size := range []int{1_000, 10_000} {
			points, now := make([]Point, size), map[int32]Point{}
			for i := range points {
				points[i] = Point{ID: int32(i), Rank: uint64(i), Hash: uint64(i)}
				if by == "coordinate" {
					points[i].At[1] = int64(i)
				}
				now[points[i].ID] = points[i]
			}
			g := garden{tree: Tree{ByHash: by == "hash"}, versions: map[uint64]string{}}
			tree := &g.tree
			tree.Build(points, probe)
			last, deepest, before := 0, 0, tree.version
			for move := range 2 * size {
				p := &points[move%size]
				was := *p
				p.At[0]++
				tree.Move(&was, p, probe)
				tree.Root()
				tree.Opened(2)
				tree.Age(probe) // each round builds the tree anew, with a cut between points that have moved and others
				now[p.ID] = *p
				depth := tree.depth(p)
				if size == 1_000 && depth+4 < last { // boxes have been rearranged
					g.checkTree(t, tree, now)
				}
				last, deepest = depth, max(deepest, depth)
			}
			touched := (tree.version - before) / uint64(2*size)
			t.Logf("%d points by %s: depth %d, %d boxes touched by a move", size, by, deepest, touched)
			require.LessOrEqual(t, deepest, maxDepth(size)+1)
			require.Less(t, touched, uint64(50))
		}
	}
}

// BenchmarkMovesInOrder is a move of the next point in the order of hashes, with Root, in forks of 1,000 moves each.
func BenchmarkMovesInOrder(b *testing.B) {
	points := make([]Point, 50_000)
	for i := range points {
		points[i] = Point{ID: int32(i), Hash: uint64(i), Kind: int32(i % 5), At: Vector{1: int64(i % 5 * 100), 2: int64(i % 3)}}
	}
	probe := func(_ Kinds, least, _ *Vector) float64 { return float64(least[0] + least[1]) }
	tree := Tree{ByHash: true}
	tree.Build(points, probe)
	for i := 0; b.Loop(); i++ {
		if i%1_000 == 0 {
			tree = tree.Fork()
		}
		p := &points[i%len(points)]
		was := *p
		p.At[0], p.At[1] = p.At[0]+1, p.At[1]+1
		tree.Move(&was, p, probe)
		tree.Root()
		tree.Opened(20)
		tree.Age(probe)
	}
}

// Points that grow in two coordinates at once are cut at now one and now the other. They do not make a list either.
func TestPointsThatGrowKeepLeavesShallow(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	var tree Tree
	var at Vector
	deepest, before := 0, tree.nextVersion()
	const size = 20_000
	for i := range size {
		at[0], at[1] = at[0]+rng.Int64N(100), at[1]+rng.Int64N(100)
		p := Point{ID: int32(i), At: at}
		tree.Put(&p, nil)
		tree.Root()
		deepest = max(deepest, tree.depth(&p))
	}
	touched := (tree.version - before) / size
	t.Logf("depth %d, %d boxes touched by a point", deepest, touched)
	require.Zero(t, tree.excess)
	require.LessOrEqual(t, deepest, maxDepth(size)+1)
	require.Less(t, touched, uint64(60))
}

// Points that are equal in nearly all coordinates make a deep tree. Points that come in the order of their ranks then
// rearrange small boxes, and not again and again the large ones above them.
func TestPointsThatAreSparse(t *testing.T) {
	for _, size := range []int{1_000, 10_000} {
		rng := rand.New(rand.NewPCG(1, 2))
		points := make([]Point, size)
		for i := range points {
			points[i] = Point{ID: int32(i), Rank: uint64(i)}
			if rng.IntN(2) == 0 {
				points[i].At[rng.IntN(Dims)] = rng.Int64N(2001) - 1000
			}
		}
		var tree Tree
		tree.Build(points, nil)
		before, moves := tree.version, 3*size
		for i := range moves {
			p := &points[i%size]
			was := *p
			p.Rank = uint64(size + i)
			tree.Move(&was, p, nil)
			tree.Root()
		}
		touched := (tree.version - before) / uint64(moves)
		t.Logf("%d points: %d deeper than other trees, %d boxes touched by a move", size, tree.excess, touched)
		require.Less(t, touched, uint64(80))
	}
}

// A probe that always takes the few points of one kind from all others makes a deep tree. Dividing such points anew does
// not help, so it is not done again for each point that comes.
func TestATreeMayBeDeep(t *testing.T) {
	probe := func(kinds Kinds, _, _ *Vector) float64 { return float64(bits.TrailingZeros64(uint64(kinds))) }
	rng := rand.New(rand.NewPCG(1, 2))
	points := make([]Point, 4_000)
	for i := range points {
		points[i] = Point{ID: int32(i), Kind: int32(i % Apart), At: Vector{rng.Int64N(1000)}}
	}
	var tree Tree
	tree.Build(points, probe)
	moves, before := 3*len(points), tree.version
	for range moves {
		p := &points[rng.IntN(len(points))]
		was := *p
		p.At[0] = rng.Int64N(1000)
		tree.Move(&was, p, probe)
		tree.Root()
	}
	touched := (tree.version - before) / uint64(moves)
	t.Logf("%d deeper than other trees, %d boxes touched by a move", tree.excess, touched)
	require.NotZero(t, tree.excess)
	require.Less(t, touched, uint64(150), "a move changes up to 2 x 70 boxes")
}

// When the last point of a leaf goes, the boxes above it shrink, also if nothing else in them has changed.
func TestBoxesShrink(t *testing.T) {
	for seed := range uint64(20) {
		rng := rand.New(rand.NewPCG(seed, 0))
		var tree Tree
		points := make([]Point, 200)
		for i := range points {
			points[i] = Point{ID: int32(i), Rank: uint64(i), At: Vector{int64(i), rng.Int64N(50)}}
		}
		tree.Build(points, nil)
		for i := range points[1:] {
			tree.Remove(&points[i])
			require.Equal(t, int64(i+1), tree.Root().Least[0])
			require.Equal(t, uint64(i+1), tree.Root().Rank)
		}
	}
}
