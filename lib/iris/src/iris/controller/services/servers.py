"""Both servers of a controller, with every service registered."""

from functools import partial

import grpc.aio

from iris.controller.access.interceptor import Behaviour, Decoder, ServerInterceptor
from iris.controller.access.stream_server import StreamServer, admit_stream
from iris.controller.context import Controller
from iris.controller.services.access import AccessService
from iris.controller.services.blobs import BlobService
from iris.controller.services.clients import ClientService
from iris.controller.services.cluster import ClusterService
from iris.controller.services.commands import ExecService
from iris.controller.services.dashboard import DashboardService
from iris.controller.services.endpoints import EndpointService
from iris.controller.services.jobs import JobService
from iris.controller.services.worker import WorkerService
from iris.rpc.generated import access_pb2_grpc, dashboard_pb2_grpc, endpoints_pb2_grpc, exec_pb2_grpc, iris_pb2_grpc
from iris.rpc.generated import iris_pb2 as pb
from iris.rpc.protocol import SERVER_OPTIONS, SOCKET_NAME


def make_servers(controller: Controller, interceptor: ServerInterceptor) -> tuple[grpc.aio.Server, StreamServer]:
    """Return the gRPC server, which has no port yet, and the Unix socket's server. Neither has started."""
    clients, workers = ClientService(controller), WorkerService(controller)
    streams: dict[str, tuple[Behaviour, Decoder]] = {
        "/iris.v1.ClientService/Session": (clients.Session, pb.ClientMessage.FromString),
        "/iris.v1.WorkerService/Session": (workers.Session, pb.WorkerMessage.FromString),
    }
    local = StreamServer(controller.config.state_dir / SOCKET_NAME, partial(admit_stream, interceptor, streams))
    server = grpc.aio.server(interceptors=[interceptor], options=SERVER_OPTIONS)
    iris_pb2_grpc.add_JobServiceServicer_to_server(JobService(controller), server)
    iris_pb2_grpc.add_ClientServiceServicer_to_server(clients, server)
    iris_pb2_grpc.add_BlobServiceServicer_to_server(BlobService(controller.blobs), server)
    iris_pb2_grpc.add_ClusterServiceServicer_to_server(ClusterService(controller), server)
    endpoints_pb2_grpc.add_EndpointServiceServicer_to_server(EndpointService(controller), server)
    access_pb2_grpc.add_AccessServiceServicer_to_server(AccessService(controller), server)
    dashboard_pb2_grpc.add_DashboardServiceServicer_to_server(DashboardService(controller), server)
    iris_pb2_grpc.add_WorkerServiceServicer_to_server(workers, server)
    exec_pb2_grpc.add_ExecServiceServicer_to_server(ExecService(controller), server)
    return server, local
