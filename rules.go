package orbit

// rule is one rule of the referee. A proposal is committed in five steps: its bets are judged on the state before it
// (txn_judge.go); its commitments are executed one by one on a write-set, where each commitment also judges what
// concerns it alone; victims that need not leave their nodes are put back (txn_spare.go); every rule judges the sum of
// all commitments; and the write-set is published (state_publish.go). A rule has only the hooks that it needs; others
// are nil.
type rule struct {
	// name is the word for the rule in tests and documents. The rule's file is rule_NAME.go.
	name string
	// settle adds to the write-set what follows from all commitments together, such as the charges of queues. It also runs when a committed history is
	// applied again, and refuses nothing.
	settle func(*tx)
	// judge refuses a proposal that breaks the rule. It does not run for a committed history.
	judge func(*tx) error
	// before, amid and after write what the state keeps for the rule: counts for most rules, the records themselves for
	// holds, marks and budgets. The hook before runs when no node, gang or capsule of the proposal is written yet, amid
	// when its nodes are written but not its gangs and capsules, and after when all three are. They cannot fail.
	before, amid, after func(*State, *tx)
	// hedge says what the later proposals of a plan count with, because an earlier one may commit or not ([Draft.Propose]).
	hedge func(*planSum)
	// recount compares what the state counts for the rule with the records, for State.Verify.
	recount func(*verifier)
}

// rules lists the rules in the order in which they judge. A proposal that breaks several is refused by the first. The rules of
// company are those about which capsules share a node or a domain of nodes: Apart, Even and extras; Near has a line of its own.
var rules = [...]rule{
	{name: "capacity", judge: (*tx).judgeCapacity, hedge: (*planSum).hedgeRoom},
	{name: "devices", judge: (*tx).judgeDevices, hedge: (*planSum).hedgeDevices},
	{name: "evict", judge: (*tx).judgeMoves},
	{name: "respec", judge: (*tx).judgeGrowth},
	{name: "protect", judge: (*tx).judgeProtection, after: (*State).publishProtections, recount: (*verifier).protections},
	{name: "company", judge: (*tx).judgeCompany, before: (*State).publishCompany, hedge: (*planSum).hedgeExtras, recount: (*verifier).company},
	{name: "near", recount: (*verifier).compareNear},
	{name: "budget", judge: (*tx).judgeBudgets, before: (*State).publishHealth, after: (*State).publishBudgets, hedge: (*planSum).hedgeHealth, recount: (*verifier).budgets},
	{name: "stops", settle: (*tx).settleWaits, judge: (*tx).judgeWaits, before: (*State).publishStopped},
	{name: "surge", judge: (*tx).judgeSurges},
	{name: "gang", judge: (*tx).judgeGangs, recount: (*verifier).compareGangs},
	{name: "nominate", judge: (*tx).judgeNominations, amid: (*State).publishNominations, hedge: (*planSum).hedgeLoans, recount: (*verifier).nominations},
	{name: "failures", after: (*State).publishFailures, recount: (*verifier).failures},
	{name: "quota", settle: (*tx).chargeQueues, judge: (*tx).judgeQueues, before: (*State).publishQueues, hedge: (*planSum).hedgeQuota, recount: (*verifier).queues},
	{name: "hold", after: (*State).publishHolds},
	{name: "mark", after: (*State).publishMarks},
}

// The hooks of each kind, in the order of the list and without those that are nil: a commit loops over these.
var (
	settles  = hooksOf(func(r *rule) func(*tx) { return r.settle })
	judges   = hooksOf(func(r *rule) func(*tx) error { return r.judge })
	befores  = hooksOf(func(r *rule) func(*State, *tx) { return r.before })
	amids    = hooksOf(func(r *rule) func(*State, *tx) { return r.amid })
	afters   = hooksOf(func(r *rule) func(*State, *tx) { return r.after })
	hedges   = hooksOf(func(r *rule) func(*planSum) { return r.hedge })
	recounts = hooksOf(func(r *rule) func(*verifier) { return r.recount })
)

// hooksOf returns the hooks of one kind that are not nil. The hook of a rule is what of returns.
func hooksOf[F func(*tx) | func(*tx) error | func(*State, *tx) | func(*planSum) | func(*verifier)](of func(*rule) F) (hooks []F) {
	for i := range rules {
		if hook := of(&rules[i]); hook != nil {
			hooks = append(hooks, hook)
		}
	}
	return hooks
}
