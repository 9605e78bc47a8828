// Package whatif answers questions about a constellation without changing it. It works on forks of a state. A fork is a
// ledger in memory that begins at the state and shares all records that it does not change.
//
//	state ─┬─► fork + commitments ─► real navigators, until they rest ─► Report ─► Commit sends those very proposals
//	       └─► Explain ─► every node by all reasons against it, and the smallest changes that would make the work fit
//
// It answers these questions:
//
//   - [Plan] tries commitments, such as a submission, or a node that is cordoned, joins or is lost. [Trial] does so with
//     engines as they run for real.
//   - [Trial.Without] says for each rack or zone whether its capsules would fit elsewhere if it were lost.
//   - [ScaleUp] says which nodes have to join so that all that waits has a place, at the least price; [ScaleDown] says which
//     can go, and what has to move for that.
//   - [HowMany] says how many more capsules of a spec fit.
//   - [Explain] says why a spec does not fit, and which changes would make it fit; [ExplainGang] does so for a gang.
//   - [Shadow] and [World] run engines beside the real ones and commit nothing to the real ledger. A Shadow plans each
//     pass of a real engine again. A World is a fork that follows the real ledger, and on which its engines go on
//     planning.
//
// Questions about a state read only that state, so the answers hold for it and not for later ones. Functions may be
// called from any goroutine.
package whatif
