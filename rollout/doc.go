// Package rollout keeps a service at its number of members and replaces them, when its version changes, without stopping
// more of them than it may miss.
//
//	what is wanted: Service ──┐
//	                          ├─► Step ─► Submit, Release, PutBudget ─► Ledger.Propose
//	what is there:  State ────┘     ▲                                        │
//	                                └──────── the next state ◄───────────────┘
//
// There is no rollout object and no controller state: [Service.Step] reads one state and says what to do now, so a
// process that is killed goes on where the ledger is. Keep what is wanted where it lasts, for example in a mark, and let
// each proposal bet on it ([orbit.MarkAt]); then any number of processes may call Step at once.
//
//   - A member is replaced under its own id: the new one begins when the former one has stopped, wherever it is placed.
//   - With Surge, further members of the new version are added first and taken away at the end, so a service with
//     Missing 0 is rolled out without a moment in which it has fewer than Count members that serve.
//   - A version that never serves stops the rollout after Missing+Surge members. To go back, ask for the old version:
//     members that still have it stay.
//   - The same bound is a budget in the ledger ([orbit.Budget]), so that drains and evictions wait for the rollout, too.
package rollout
