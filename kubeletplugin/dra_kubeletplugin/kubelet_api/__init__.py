"""The gRPC interfaces between kubelet and a DRA plugin, with their stubs (made by hack/codegen).

The .proto files are those of the Go module k8s.io/kubelet v0.37.2, unchanged, each under a name of its own, since files
of the same name cannot be loaded by one process:

    registration_v1.proto   pkg/apis/pluginregistration/v1/api.proto
    dra_v1.proto            pkg/apis/dra/v1/api.proto
    dra_v1beta1.proto       pkg/apis/dra/v1beta1/api.proto
    health_v1.proto         pkg/apis/dra-health/v1/api.proto
    health_v1alpha1.proto   pkg/apis/dra-health/v1alpha1/api.proto

Copyright The Kubernetes Authors, licensed under the Apache License, Version 2.0.
"""
