"""Kubernetes: a pod a runner.

`settings` says what the cluster must already have, `catalogue` sells what runner types ask for, `pod` writes one
launch as a pod and its secret, `client` speaks REST through the SDK's configuration, `errors` maps the API's
errors onto the core's, and `provider` is the adapter.
"""

from providers.kubernetes.provider import KIND, Kubernetes
from providers.kubernetes.settings import KubernetesSettings

__all__ = ["KIND", "Kubernetes", "KubernetesSettings"]
