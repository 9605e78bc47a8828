// Package peers measures orbit beside schedulers that others have published, in one process and in turns. It has only benchmarks. Their
// files need the tag peers, because the other schedulers are large to download and to compile:
//
//	cd internal/peers && go test -tags peers -run '^$' -bench . -benchtime 20x .
//
// Nomad is version 1.6.1, the last version whose scheduler is free software. It runs in the harness of its own benchmarks, which keeps
// the state in memory and commits each plan without a check. kube-scheduler is measured in kubeorbit/itest, beside an API server.
package peers
