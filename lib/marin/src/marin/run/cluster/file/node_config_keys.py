"""The keys that Google Cloud's APIs accept in a node_config, which Ray does not check.

Neither Ray nor Google's client checks for typos: the API refuses them when a node is created, long after `ray up`. The
names come from the discovery documents "tpu v2" and "compute v1"; a test compares them.
"""

from collections.abc import Mapping
from typing import Final


def keys(text: str) -> frozenset[str]:
    """Return the words of a text as a set."""
    return frozenset(text.split())


TPU_NODE: Final = keys(
    """
    acceleratorConfig acceleratorType bootDiskConfig cidrBlock dataDisks description health labels metadata
    networkConfig networkConfigs runtimeVersion schedulingConfig serviceAccount shieldedInstanceConfig tags
    """
)
TPU_SCHEDULING: Final = keys("preemptible reserved spot")
TPU_NETWORK: Final = keys("canIpForward enableExternalIps network queueCount subnetwork")
TPU_ACCELERATOR: Final = keys("topology type")
INSTANCE: Final = keys(
    """
    advancedMachineFeatures canIpForward confidentialInstanceConfig deletionProtection description disks
    displayDevice fingerprint guestAccelerators hostname instanceEncryptionKey keyRevocationActionType
    labelFingerprint labels localSsdEncryptionMode machineType metadata minCpuPlatform name networkInterfaces
    networkPerformanceConfig params privateIpv6GoogleAccess reservationAffinity resourcePolicies scheduling
    serviceAccounts shieldedInstanceConfig shieldedInstanceIntegrityPolicy sourceInstanceTemplate sourceMachineImage
    sourceMachineImageEncryptionKey tags workloadIdentityConfig
    """
)
DISK: Final = keys(
    """
    autoDelete boot deviceName diskEncryptionKey diskSizeGb forceAttach guestOsFeatures initializeParams interface
    mode source type
    """
)
DISK_PARAMETERS: Final = keys(
    """
    architecture description diskName diskSizeGb diskType enableConfidentialCompute labels licenses onUpdateAction
    provisionedIops provisionedThroughput replicaZones resourceManagerTags resourcePolicies sourceImage
    sourceImageEncryptionKey sourceSnapshot sourceSnapshotEncryptionKey storagePool
    """
)
SCHEDULING: Final = keys(
    """
    automaticRestart availabilityDomain exposeHostTopology gracefulShutdown hostErrorTimeoutSeconds
    instanceTerminationAction localSsdRecoveryTimeout locationHint maxRunDuration minNodeCpus nodeAffinities
    onHostMaintenance onInstanceStopAction preemptible preemptionNoticeDuration protectionTier provisioningModel
    skipGuestOsShutdown terminationTime
    """
)
NETWORK_INTERFACE: Final = keys(
    """
    accessConfigs aliasIpRanges aliasIpv6Ranges enableVpcScopedDns fingerprint igmpQuery internalIpv6PrefixLength
    ipv6AccessConfigs ipv6Address network networkAttachment networkIP nicType parentNicName queueCount
    serviceClassId stackType subnetwork vlan
    """
)

TPU_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "": TPU_NODE,
    "schedulingConfig": TPU_SCHEDULING,
    "networkConfig": TPU_NETWORK,
    "acceleratorConfig": TPU_ACCELERATOR,
}
"""Keys of a TPU's node_config, and of the objects in it."""

INSTANCE_KEYS: Final[Mapping[str, frozenset[str]]] = {
    "": INSTANCE,
    "disks": DISK,
    "disks.initializeParams": DISK_PARAMETERS,
    "scheduling": SCHEDULING,
    "networkInterfaces": NETWORK_INTERFACE,
}
"""Keys of a VM's node_config, and of the objects in it."""
