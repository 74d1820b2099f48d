"""CTranslate2, with a model written by `kutta export --to ctranslate2`."""

from environments import Absent, Steps, python_of

from decoders.decoder import Case, Job, Model, Place, Program, Way, arrangements, script
from kutta.export.ctranslate2 import export_ctranslate2, obstacle

VERSION = "4.8.4"
INSTALL: Steps = ((f"ctranslate2=={VERSION}",),)  # an environment of its own, without torch
TYPES = {"fp32": "float32", "int8": "int8"}


def ways(case: Case, threads: int) -> list[Way]:
    """Both precisions, in every arrangement of workers and their threads."""
    return [
        Way("CTranslate2", case, precision, f"{workers} x {each}")
        for precision in TYPES
        for workers, each in arrangements(threads)
    ]


def job(place: Place, model: Model, way: Way) -> Job:
    python = python_of("CTranslate2", INSTALL, place.envs, place.install)
    folder, kind = place.work / f"ctranslate2-{way.precision}", TYPES[way.precision]
    if reason := obstacle(model.run.config.model):
        raise Absent(reason)
    if not folder.exists():
        export_ctranslate2(model.run, folder, kind)
    workers, threads = map(int, way.workers.split(" x "))
    options = {"inter_threads": workers, "intra_threads": threads, "compute_type": kind}
    return Job(script(python, "ctranslate2", folder, options), {}, folder)


PROGRAM = Program("CTranslate2", lambda: VERSION, ways, job)
