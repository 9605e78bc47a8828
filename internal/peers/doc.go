// Package peers measures published schedulers beside orbit, in one process and in turns. It has only benchmarks, in files behind
// the tag peers, because what they are compared with is large to download and to compile:
//
//	cd internal/peers && go test -tags peers -run '^$' -bench . -benchtime 20x .
//
// Nomad is version 1.6.1, the last one of which the scheduler is free software. It runs in the harness of its own benchmarks, whose
// state is in memory and which commits each plan without a check. kube-scheduler is measured in kubeorbit/itest, beside an API server.
package peers
