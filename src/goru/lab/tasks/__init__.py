"""The tasks, one file each; `TASKS` finds their settings by the experiment's name."""

from goru.lab.tasks.copying import Copying
from goru.lab.tasks.denoise import Denoise
from goru.lab.tasks.parenthesis import Parenthesis
from goru.lab.tasks.task import Task

TASKS: dict[str, type[Task]] = {"copying": Copying, "denoise": Denoise, "parenthesis": Parenthesis}
