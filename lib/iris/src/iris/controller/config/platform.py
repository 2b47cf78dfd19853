"""The platform of a cluster file: what makes its machines, and the autoscaler's settings."""

from iris.autoscale.rules import AutoscaleRules, ControllerHost, Platform, SshSettings
from iris.controller.config.sections import Section


def platform_of(root: Section) -> Platform:
    """Return the settings of what makes machines."""
    section, defaults = root.section("platform"), root.section("defaults")
    ssh, worker = defaults.section("ssh"), defaults.section("worker")
    return Platform(
        project_id=section.section("gcp").text("project_id") if section.has("gcp") else "",
        label_prefix=section.text("label_prefix"),
        controller=_controller(root.section("controller")),
        ssh=SshSettings(
            ssh.text("user"),
            ssh.text("key_file"),
            ssh.whole("port"),
            ssh.number("connect_timeout"),
            ssh.text("known_hosts_file"),
        ),
        worker_port=worker.whole("port"),
        cache_dir=worker.text("cache_dir"),
        environment=worker.texts("env"),
        task_environment=defaults.texts("task_env"),
        task_image=defaults.text("task_image"),
    )


def autoscale_rules(root: Section) -> AutoscaleRules:
    """Return the autoscaler's settings."""
    section = root.section("defaults").section("autoscaler")
    boots = [section.number(key) for key in ("boot_timeout", "requesting_timeout") if section.has(key)]
    return AutoscaleRules(
        look_s=section.number("evaluation_interval"),
        idle_s=section.number("scale_down_delay"),
        boot_deadline_s=max(boots, default=section.number("boot_timeout")),
        call_deadline_s=section.number("call_timeout"),
        short_life_s=section.number("short_life"),
        creates_per_minute=section.whole("creates_per_minute"),
        creates_per_hour=section.whole("creates_per_hour"),
        max_hosts=section.whole("max_hosts"),
        notice_after_s=section.number("notice_after"),
    )


def _controller(section: Section) -> ControllerHost | None:
    if section.has("manual"):
        if section.has("gcp"):
            section.note("manual", "the controller runs at Google or on a host by ssh, not both; leave one out")
        manual = section.section("manual")
        return ControllerHost(host=manual.text("host"), port=manual.whole("port") or section.whole("port"))
    if not section.has("gcp"):
        return None
    gcp = section.section("gcp")
    return ControllerHost(
        zone=gcp.text("zone"),
        machine_type=gcp.text("machine_type"),
        disk_size_gb=gcp.whole("boot_disk_size_gb"),
        service_account=gcp.text("service_account"),
        image=gcp.text("image"),
        port=gcp.whole("port") or section.whole("port"),
    )
