// Package itest runs the module kubeorbit against a real Kubernetes API server. Its tests start etcd and kube-apiserver in the
// test process and stand in for the kubelets. The scheduler under test, orbit or kube-scheduler, is a process of its own, so that
// its processor time can be read and so that it can be killed.
//
// The tests need the build tag kube, since they compile Kubernetes, which takes about ten minutes of processor time once:
//
//	go test -c -tags kube -p 1 -o itest.test . && ./itest.test -test.v
//
// The size of the scenarios is set by -nodes and -pods:
//
//	./itest.test -test.v -test.run TestScenarios -nodes 2000 -pods 10000
//
// To have a cluster to try a scheduler on, until it is interrupted:
//
//	./itest.test -test.v -test.timeout 0 -test.run TestServe -nodes 20 -serve /tmp/kubeconfig
package itest
