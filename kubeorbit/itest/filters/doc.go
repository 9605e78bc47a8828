// Package filters compares kubeorbit with the filter plugins of kube-scheduler: on which nodes does a pod fit? Its tests need the build
// tag kube.
//
//	go test -tags kube -p 1 . -rapid.checks 20000
package filters
