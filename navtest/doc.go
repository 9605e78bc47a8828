// Package navtest checks that a navigator keeps the rules that engines, ledgers and other navigators rely on.
// The author of an [orbit.Navigator] calls it from a test:
//
//	func TestPacker(t *testing.T) {
//		navtest.Suite{Modules: []string{"web"}}.Run(t, func() orbit.Navigator { return &Packer{} })
//	}
//
// The zero Suite is enough for a navigator that claims by class. For one that claims modules, name these in
// Suite.Modules, or every rule fails.
//
// Each rule is a subtest of its name, so that go test -run TestPacker/capacity checks one alone. A [Suite] has what can
// be set: the modules that the navigator claims, what it requires of nodes and specs, its filter, telemetry, seeds and bounds, and
// rules to skip. [Suite.Check] does the same without a test and returns the broken rules.
//
// # The rules
//
// The rules are in rules.go, each with the reason for it and with schedulers that were released without it. A test with
// -v prints them, and so does a failure. Details are in the file with the rule's name (readonly.go and odd.go for two
// of them).
//
// # How to keep them
//
// A navigator that takes every node from Best of an [orbit.PlacementEngine], and every proposal from an [orbit.Draft],
// keeps most of the rules without further code. Any other navigator has to account for what its own plan has promised,
// device instances included, and for Spec.Near, because NodeState.Fits considers neither. Every navigator has to keep
// these rules itself:
//
//	context       look at ctx.Err() before each capsule, and return the plan so far with that error
//	explanation   put a capsule that is not placed into Plan.Unplaced, with the error of Best
//	gangs         leave out every capsule with a Gang, of whatever class, with an error that is no *NoFit
//	claims        do not claim orbit.GangClass, unless the navigator places gangs
//
// # The work
//
// The suite asks which of its modules, with which classes, the navigator claims, and submits work of these: gangs for
// [orbit.GangClass], capsules for the other classes. It also submits other work, which the navigator must not touch. A
// navigator that claims nothing of these modules fails every rule, because nothing has been checked.
//
// Some worlds are made for one rule, with enough free capacity for everything that has to fit. The others are random:
// nodes of all kinds on which not everything fits, capsules and holds of other engines, and between passes nodes that
// shrink, are drained, lose devices, leave and come back. They depend on Suite.Seed alone; a failure names the seed and
// the world. A navigator need not place anything in a random world, but its plan must be sound.
//
// # How the rules are checked
//
// Every world is an [orbit.MemoryLedger] with one engine, because that is how navigators are run, and the suite stands
// between the engine and the navigator. Whether a plan can be committed is decided by a ledger that starts at the
// plan's view. No rule measures time; only a call that takes longer than Suite.Patience counts as one that never
// returns. So the results depend neither on the machine nor on the race detector, which also finds navigators that
// write to shared data.
//
// A navigator that keeps all rules can still be slow or make poor choices. The suite does not judge that.
package navtest
