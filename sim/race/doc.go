// Package race runs real engines in made-up worlds, to find what no test of a single pass can. A [Config] is a race, which
// looks at every step of engines, ledger and world for a promise that is broken. A [Scenario] draws races from seeds:
// [Patience] hunts for work that waits for ever, [Preemption] for evictions in vain, and [Liveness] for what is left pending when all has come to rest. All are
// deterministic: a seed plays the same history again, and a failure is made small before it is told.
package race
