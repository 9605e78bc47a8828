// Package navtest checks that a navigator keeps the rules that engines, ledgers and other navigators rely on.
// Whoever writes an [orbit.Navigator] calls it from a test:
//
//	func TestPacker(t *testing.T) {
//		navtest.Run(t, func() orbit.Navigator { return &Packer{} })
//	}
//
// That is enough for one that claims by class. One that claims a module is told to the suite, or every rule fails:
//
//	navtest.Suite{Modules: []string{"web"}}.Run(t, func() orbit.Navigator { return &Packer{} })
//
// Each rule is a subtest of its name, so that go test -run TestPacker/capacity checks one alone. A [Suite] has
// what can be set: modules that the navigator claims, what it wants of nodes and specs, telemetry, seeds and bounds,
// and rules to skip. [Suite.Check] does the same without a test and returns what is broken.
//
// # The rules
//
//	claims        Claims always gives the same answer, whatever it is asked, from any goroutine
//	ownership     a plan touches only work that is the navigator's: claimed, or assigned to its engine; each capsule once
//	capacity      all proposals of a plan commit, one after another, on a ledger at that very view
//	requirements  a capsule is placed where all its requirements hold
//	devices       a capsule gets the device instances that it asks for, healthy ones with so much free
//	company       a capsule that wants to be near a group is placed where the group is running
//	freshness     a plan rests on the view that it is given, not on an earlier one
//	priority      of work that is alike the lower priority is not placed while the higher waits
//	identity      a proposal's id is left to the engine, or is its own
//	holds         a hold ends, in good time
//	context       Plan ends when its context does, and what it returns then is sound and says so
//	determinism   equal navigators make equal plans of equal views
//	explanation   every capsule handed over is placed, or explained, and not both
//	read-only     Plan writes to nothing that it is given
//	conflict      what was lost to somebody else is planned again; what somebody else has placed is not
//	recovery      room that is given back is used; a capsule that comes back is placed again
//	exhaustion    a *NoFit is said only of what fits on no node
//	gangs         a gang is placed whole, or at least its minimum, by whoever claims gangs and nobody else
//	odd-worlds    no constellation and no work makes it panic, fail or plan what cannot be
//	liveness      what fits easily is placed within a bound of passes
//
// The comment at the top of the file of that name (readonly.go and odd.go for two of them) says why a rule is
// there, and which trusted scheduler has shipped without it.
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
// A view can only be made by an [orbit.Engine], so every world is an [orbit.MemoryLedger] with one engine on it,
// and the suite stands between the engine and the navigator. Whether a plan can be committed is what a ledger
// says that starts at the plan's own view, not what the suite thinks. No rule asks a clock, but for
// Suite.Patience, after which a call counts as one that never returns; so results do not depend on the machine.
// Nor do they on the race detector; with it, a navigator that writes to what is shared is caught in the act.
//
// A navigator that keeps all rules can still be slow, or choose badly. What it chooses is its own business.
package navtest
