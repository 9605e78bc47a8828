// Package whatif answers questions about a constellation without touching it. It works on forks of one state: ledgers in
// memory that begin at that state and share what they do not change.
//
//	state ─┬─► fork + commitments ─► real navigators, until they rest ─► Report ─► Commit sends those very proposals
//	       └─► Explain ─► every node by all reasons against it, and the smallest changes that would make the work fit
//
// [Plan] tries commitments: a submission, a node that is cordoned, joins or is lost. [Trial] does so with engines as they
// run for real. [Trial.Without] asks for each rack or zone whether its work finds room elsewhere when it is lost, and
// [HowMany] how many more capsules of a spec fit. [Explain] says why a spec does not fit, and what would make it fit; [ExplainGang] does so for a gang. [Shadow] and
// [World] run engines beside the real ones and commit nothing: a Shadow plans each of their passes again, and a World lives on a fork that
// is fed with what happens.
//
// What is asked reads the state that it is given and nothing else, so its answer holds for that state. Functions may be called
// from any goroutine.
package whatif
