// Package race runs real engines in made-up worlds, to find what no test of a single pass can: [Config] is a race, which
// looks at every step of engines, ledger and world for a promise that is broken; [Liveness] plays small worlds, and looks
// at what is left pending when all has come to rest. Both are deterministic: a seed plays the same history again, and a
// failure is made small before it is told.
package race
