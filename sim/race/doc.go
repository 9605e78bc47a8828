// Package race runs real engines in made-up worlds, to find bugs that no test of a single pass can find. A [Config] is
// a race: after every step of the engines, the ledger and the world it checks whether a promise has been broken. A
// [Scenario] draws races from seeds: [Patience] hunts for work that waits for ever, [Preemption] for evictions in vain,
// and [Liveness] for capsules that stay pending after everything has come to rest. All are deterministic: a seed plays
// the same history again. A failure is shrunk before it is reported.
package race
