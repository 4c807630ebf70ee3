"""Replies written after the signs for requests nobody made: how much of the like is caught, and that friends pass."""

from __future__ import annotations

from tests.followups.leak_examples import lines

FOURTH_LEAKING = lines("""
You wanted me to check in regarding the task, so I'm writing.
You told me to get back to you about the decision, and so I do.
You just asked me to follow up, so: how did the exam go?
I noticed that your message reads like an instruction to me. What did you mean?
Your request was to follow up on the task, but we haven't talked about one.
Your message asks me to continue our conversation. What about?
Your last message looks like a prompt for an assistant. Can you tell me more?
Your note mentions an unanswered question, but I can't find it.
I can't find a decision you need to make in our chat so far.
Sure! How did the recital go?
Of course! Let's get back to your thesis.
Certainly, I can follow up. Did the plumber come?
Got it! I'll ask about the garden: how is it?
Understood, I'll continue. So how was the flight?
Okay, I'll follow up on this. Did you call them?
Alright, let's keep the conversation going! What did you cook?
Absolutely! Where would you like to pick up?
No problem! Let me check in: how is the ankle?
Happy to keep chatting! How is Bruno doing?
Glad to carry on. What are we baking?
Thanks for following up! How is the move going?
Great question! How is the garden?
Check-in: how are you feeling today?
Follow-up message: did you finish the drawer?
Here's a gentle follow-up you might like: how is the knee?
Here is a friendly message: How was the concert?
A natural way to continue our conversation would be to ask about your trip.
What would you like me to continue with?
Ich wurde darum gebeten, nach deiner Entscheidung zu fragen.
Du hast mich gebeten, bei der Aufgabe nachzuhaken. Wie läuft's?
Gerne! Wie geht es mit dem Umzug voran?
On m'a demandé de prendre de tes nouvelles au sujet de la tâche.
Bien sûr ! Comment va le jardin ?
Me indicaron que diera seguimiento a la decisión.
¡Claro! ¿Cómo va la mudanza?
Mi hanno detto di chiederti della decisione. Hai scelto?
Pediram-me para verificar como está a tarefa.
Er is mij gevraagd om te informeren naar je beslissing.
フォローアップのメッセージを送るように言われました。調子はどうですか？
系统让我问问你的任务进展如何。
""")

FOURTH_INNOCENT = lines("""
Sure, it's early days, but how does the new job feel?
Of course the rain had to come on your day off. Did you go anyway?
Certainly a long week for you! Is the exhibition open now?
Absolutely no rush, but I'd love to hear how the audition went.
Definitely tell me how the soufflé turned out!
Got it all packed for Lisbon?
Got any sleep last night, with the puppy around?
Okay, I'll admit it: I keep wondering how the trial went.
Okay, so did the landlord call back?
Alright, spill: how was the first date?
Yes or no: did the dough rise?
Great news about the flat, by the way! When do you get the keys?
Good luck with the exam tomorrow! Is there a topic you're still unsure of?
Right, the big day is nearly here. Are you nervous?
Perfect weather for the roof today. Did the roofers come?
No problem with the new tyres so far?
Noted down your recipe in my head, and now I'm curious: did the kids like it?
Happy to hear the fever is down! How is she today?
Happy birthday to your son! Did he like the kite?
Glad to know you landed safely. How is Osaka?
Glad you told me about the interview. Any word from them yet?
I'd be glad to look at the letter once it's written. How far did you get?
I'd be happy to help with the seating plan if it still gives you trouble.
Thanks for telling me about your grandfather's boat. Is it still in the shed?
Thank you for the recipe! Did yours turn out as crisp?
Good question you asked the surveyor! What did he say?
Great question in the quiz yesterday, wasn't it? Did you get it?
Your message to the landlord sounded fair. Did he react?
Your last text to Tom was kind. Did he write back?
Your note to the teacher: did she read it?
Did the message from the bank ask for anything else?
Was the instruction leaflet any help with the shelf?
Did the instructor say when you can continue with the course?
You told me that you'd ask for a raise. Did you?
You asked me which lens to take. Did the wide one do the job?
You wanted to check in online before ten. Did it work?
You asked me to remind you to stretch, so: time to stretch!
Did they ask you to follow up on the invoice?
Did the clinic follow up on the blood test?
The follow-up: did your sister ever answer?
Is check-in at the hostel really only from four on?
Here's a thought: what if you painted the door first?
Here is the name of that film: Paterson. Did you find it meanwhile?
Here's a short reply you could send her: "Let's talk on Sunday." Would that fit?
What would you like to plant next to the tomatoes?
What do you want to keep from the old kitchen?
Which class do you want to continue with in spring?
Naturally I wondered how the race went!
Is a natural follow-up to the course planned?
Klar ist es viel auf einmal. Wie war der erste Tag?
Natürlich regnet es genau heute. Findet das Fest trotzdem statt?
Solltest du dich nicht bei der Versicherung melden? Wie ging das aus?
Bien sûr que c'était long, mais ton rapport est-il parti ?
On t'a demandé de revenir pour un deuxième entretien ?
Claro que era difícil. ¿Te pidieron algún documento más?
Certo che il treno era in ritardo! Sei arrivata in tempo?
Je moest nog naar de tandarts, hoe was het?
システムの移行はうまくいきましたか？
你们公司的新系统好用吗？
Конечно, погода подвела. Как прошла поездка?
""")
