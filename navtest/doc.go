// Package navtest checks that a navigator keeps the rules that engines, ledgers and other navigators rely on.
// The author of an [orbit.Navigator] calls it from a test:
//
//	func TestPacker(t *testing.T) {
//		navtest.Suite{Modules: []string{"web"}}.Run(t, func() orbit.Navigator { return &Packer{} })
//	}
//
// The zero Suite is enough for one that claims by class. One that claims a module needs a suite that names it, or
// every rule fails.
//
// Each rule is a subtest of its name, so that go test -run TestPacker/capacity checks one alone. A [Suite] has
// what can be set: modules that the navigator claims, what it wants of nodes and specs, telemetry, seeds and bounds,
// and rules to skip. [Suite.Check] does the same without a test and returns what is broken.
//
// # The rules
//
// They are in rules.go, each with the reason for it and the trusted schedulers that have shipped without it; a test
// with -v prints them, and so does a failure. Details are in the file of the rule's name (readonly.go and odd.go for
// two of them).
//
// # How to keep them
//
// A navigator that takes every node from Best of an [orbit.PlacementEngine], and every proposal from an [orbit.Draft],
// keeps most of them without more ado. Without them it has to look after what is promised within a plan, device
// instances too, and after Spec.Near by itself: NodeState.Fits knows of neither. Left to every navigator are
// these:
//
//	context       look at ctx.Err() before each capsule, and return the plan so far with that error
//	explanation   put a capsule that is not placed into Plan.Unplaced, with the error of Best
//	gangs         leave out every capsule with a Gang, of whatever class, with an error that is no *NoFit
//	claims        do not claim orbit.GangClass, unless the navigator places gangs
//
// # The work
//
// The suite asks what the navigator claims, of the suite's modules with all classes, and makes work of that
// alone: capsules for the other classes, gangs for [orbit.GangClass]. Other work is there too, to see that it is
// left alone. A navigator that claims nothing of these modules fails every rule, for nothing has been checked.
//
// Some worlds are laid out for one rule; they have room in plenty for what is said to fit. The others are
// random: nodes of all kinds in which not everything fits, other people's capsules and holds, and between
// passes nodes that shrink, drain, lose devices, leave and come back. They depend on Suite.Seed alone; a failure
// names the seed and the world. A navigator need not place anything in a random world, but what it says must be
// sound.
//
// # How it looks
//
// Every world is an [orbit.MemoryLedger] with one engine on it, because that is how navigators are run, and the suite
// stands between the engine and the navigator. Whether a plan can be committed is what a ledger
// says that starts at the plan's own view, not what the suite thinks. No rule asks a clock; only a
// call that takes longer than Suite.Patience counts as one that never returns; so results do not depend on the machine.
// Nor do they on the race detector; with it, a navigator that writes to what is shared is caught in the act.
//
// A navigator that keeps all rules can still be slow, or choose badly. What it chooses is its own business.
package navtest
