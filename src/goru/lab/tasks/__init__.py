"""The settings of the tasks, one file each; `TASKS` finds them by the experiment's name. No torch is imported here."""

from goru.lab.tasks.babi import Babi
from goru.lab.tasks.copying import Copying
from goru.lab.tasks.denoise import Denoise
from goru.lab.tasks.parenthesis import Parenthesis
from goru.lab.tasks.penn_treebank import PennTreebank
from goru.lab.tasks.shortest_path import ShortestPath
from goru.lab.tasks.speech import Speech
from goru.lab.tasks.task import Task

TASKS: dict[str, type[Task]] = {
    "copying": Copying,
    "denoise": Denoise,
    "parenthesis": Parenthesis,
    "shortest_path": ShortestPath,
    "babi": Babi,
    "penn_treebank": PennTreebank,
    "speech": Speech,
}
