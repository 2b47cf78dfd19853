"""The server of a controller, with every service registered."""

import grpc.aio

from iris.controller.access.interceptor import ServerInterceptor
from iris.controller.context import Controller
from iris.controller.services.access import AccessService
from iris.controller.services.blobs import BlobService
from iris.controller.services.clients import ClientService
from iris.controller.services.cluster import ClusterService
from iris.controller.services.dashboard import DashboardService
from iris.controller.services.endpoints import EndpointService
from iris.controller.services.jobs import JobService
from iris.controller.services.worker import WorkerService
from iris.rpc import access_pb2_grpc, dashboard_pb2_grpc, endpoints_pb2_grpc, iris_pb2_grpc
from iris.rpc.protocol import SERVER_OPTIONS


def make_server(controller: Controller, interceptor: ServerInterceptor) -> grpc.aio.Server:
    """Return the gRPC server, which has no port yet and has not started."""
    server = grpc.aio.server(interceptors=[interceptor], options=SERVER_OPTIONS)
    iris_pb2_grpc.add_JobServiceServicer_to_server(JobService(controller), server)
    iris_pb2_grpc.add_ClientServiceServicer_to_server(ClientService(controller), server)
    iris_pb2_grpc.add_BlobServiceServicer_to_server(BlobService(controller.blobs), server)
    iris_pb2_grpc.add_ClusterServiceServicer_to_server(ClusterService(controller), server)
    endpoints_pb2_grpc.add_EndpointServiceServicer_to_server(EndpointService(controller), server)
    access_pb2_grpc.add_AccessServiceServicer_to_server(AccessService(controller), server)
    dashboard_pb2_grpc.add_DashboardServiceServicer_to_server(DashboardService(controller), server)
    iris_pb2_grpc.add_WorkerServiceServicer_to_server(WorkerService(controller), server)
    return server
