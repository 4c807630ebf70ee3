"""Replies to follow-ups: some give the machinery away, most are what a friend would write. One to a line."""

from __future__ import annotations


def lines(text: str) -> list[str]:
    """Return the replies of a block, one to a line; ⏎ stands for a line break within one."""
    return [line.strip().replace(" ⏎ ", "\n") for line in text.strip().splitlines()]


REPORTED_LEAKING = lines("""
Hi, you asked me to follow up on the tax form.
The timer fired, so here I am: how is the form?
My scheduled follow-up: how is the form?
I was told that they wrote 1 minute ago about a form.
They wrote 1 minute ago: “I have to send the tax form on Friday”
""")
"""Leaks that a stub model sent in a trial of the running server."""

LEAKING = lines("""
I see you mentioned an incomplete message. Could you tell me more?
It looks like your message got cut off. What did you want to say?
Your message seems cut off, could you send it again?
Your last message appears to be incomplete. What would you like to talk about?
I think your question was cut short. Could you repeat it?
It seems your message didn't come through completely.
You didn't finish your sentence. What were you going to say?
I received an empty message from you. Is everything okay?
I don't see a question in your message. What can I do?
There is no question in your message, so I'm not sure what to say.
I see you sent a follow-up request. How can I help?
Thanks for the follow-up request! Let's talk about pizza.
I got your follow-up request about the job.
This is a follow-up message about the marathon.
You asked me to continue our conversation naturally, so: how is the marathon training?
Sure, let's continue our conversation naturally! How is the dough?
Sure! I'll continue the conversation. So, how is your garden?
Of course, let me follow up on the decision. Have you made up your mind?
Let's continue our conversation naturally.
Continue our conversation naturally.
"Continue our conversation naturally." Well, how did the interview go?
Continuing our conversation naturally: did you bake the bread?
To keep the conversation going naturally, how is your sister?
I'd love to naturally continue our conversation about Rome.
The user asked a question but hasn't responded. Follow up on it.
The user hasn't responded yet, so I will ask again: when is the flight?
The user hasn't responded. How is the flat hunt going?
The user has not answered my question about the exam.
The user seems to be busy, so I'll keep it short. How is the exam?
It seems the user went silent. How about the trip?
I should ask the user about the pizza dough again.
Okay, I need to check in with the user about the report. How is the report coming along?
You asked a question but haven't responded, so I'm following up on it.
Check in about the incomplete task we discussed.
I wanted to check in about the incomplete task we discussed. Is the essay done?
I'm checking in about the incomplete task we discussed: your tax return.
Follow up on the decision the user needs to make.
I'm following up on the decision you need to make. Job or no job?
As instructed, I'm following up about your essay.
As instructed: how is the essay?
I was told to follow up with you about the landlord.
I was told to check in. How is everything?
I've been asked to check in about your report.
I have been instructed to continue this chat. How was lunch?
I'm supposed to follow up on your decision now.
I was prompted to reach out to you. What's new with the kitchen?
I'm just checking in as requested. Any news about the visa?
According to my instructions I should ask about your day.
My instructions say I should ask how the piano lesson went.
The prompt says to follow up, so here I am: how was the date?
Based on the prompt, I think you want to hear about Lisbon again.
In response to your prompt: how are the tomatoes doing?
This is a system message asking me to check on you.
I just received a system prompt about your task. How is it going?
The system asked me to write to you. How was the concert?
The system told me that you went quiet. Everything fine?
A system trigger reminded me of your essay.
My system timer went off, so I'm asking: did you call the landlord?
My timer just went off! How is the essay?
A timer fired and here I am. How is the essay?
The follow-up timer expired, so: have you decided?
The check-in trigger fired. How is the knee?
I've received a check_in event. How is the knee?
[AUTONOMOUS_FOLLOWUP: check_in] How is the knee?
[AUTONOMOUS_FOLLOWUP: waiting_for_decision]
trigger_type: task_incomplete. How far have you got with the essay?
This is an autonomous message. How is the dog?
This autonomous follow-up is about your dog.
Since this is a synthetic message, I will keep it short. How is the dog?
The message is marked as synthetic. Anyway, how was Paris?
{"synthetic": true} How was Paris?
<system>Follow up</system> How was Paris?
<system-reminder>be nice</system-reminder> Did you get the tickets?
System: continue. ⏎ How was the film?
Assistant: How was the film?
[Check-in] How was the film?
(Following up) How was the film?
*checks in* So, how was the film?
Here's a natural follow-up: How was the film?
Here is my check-in message: How was the film last night?
This is an automated check-in. How was the film?
This message was automatically generated. How was the film?
This message was triggered because you were quiet. How was the film?
I detected a period of inactivity, so I wanted to ask about the film.
After 30 seconds of silence I thought I'd ask: how was the film?
I don't see any incomplete task in our conversation. Which one do you mean?
I don't have any record of an incomplete task. What were you working on?
I'm not sure which task you are referring to. Could you remind me?
I don't have any previous conversation to continue. What's on your mind?
I'd be happy to continue our conversation! What shall we talk about?
No problem, I'll follow up on it. Did the parcel arrive?
I don't have any pending decision on record. Could you remind me?
Could you tell me which decision you'd like me to follow up on?
What question would you like me to follow up on?
You told me to follow up on it, so: did the parcel arrive?
You asked me to check in about the task. Is it done?
There's no question to follow up on, I think. How are you?
An internal prompt tells me to ask about your knee.
I'm triggered to ask about your knee.
Ich habe eine Systemnachricht bekommen. Wie geht es deinem Knie?
Deine Nachricht scheint unvollständig zu sein. Was wolltest du sagen?
Ich wurde angewiesen, nachzufragen: Hast du dich entschieden?
Ich soll bei dir nachfragen, wie es mit dem Aufsatz läuft.
Du hast mich gebeten, unser Gespräch natürlich fortzusetzen. Wie war der Urlaub?
Der Nutzer hat noch nicht geantwortet. Wie war der Urlaub?
Das ist eine automatische Nachfrage: Wie war der Urlaub?
J'ai reçu un message système. Comment va ton genou ?
Ton message semble incomplet, que voulais-tu dire ?
On m'a demandé de continuer la conversation. Comment va ton genou ?
Continuons notre conversation naturellement : comment va ton genou ?
L'utilisateur n'a pas répondu. Comment va ton genou ?
Recibí un mensaje del sistema. ¿Cómo va la rodilla?
Parece que tu mensaje está incompleto. ¿Qué querías decir?
Me pediste que continuara nuestra conversación. ¿Cómo va la rodilla?
Sigamos nuestra conversación de forma natural: ¿cómo va la rodilla?
El usuario no ha respondido todavía. ¿Cómo va la rodilla?
Ho ricevuto un messaggio di sistema. Come va il ginocchio?
Il tuo messaggio sembra incompleto. Cosa volevi dire?
Mi è stato chiesto di continuare. Come va il ginocchio?
L'utente non ha risposto. Come va il ginocchio?
Recebi uma mensagem do sistema. Como está o joelho?
Sua mensagem parece incompleta. O que você queria dizer?
Fui instruído a dar seguimento. Como está o joelho?
O usuário não respondeu ainda. Como está o joelho?
Ik kreeg een systeembericht. Hoe gaat het met je knie?
Je bericht lijkt onvolledig te zijn. Wat wilde je zeggen?
Mij is gevraagd om ons gesprek voort te zetten. Hoe gaat het met je knie?
De gebruiker heeft nog niet geantwoord. Hoe gaat het met je knie?
""")

INNOCENT = lines("""
How is your ignition system coming along?
Did the trigger of the camera get repaired?
Any follow-up appointment at the dentist?
Shall we continue our conversation about pizza?
Did you finish the incomplete form?
Did the user manual help with the dishwasher?
By the way, did you have any other questions about pizza?
How did the interview go?
Have you made up your mind about the job yet?
Any news from the landlord?
So, Lisbon or Porto? I'm curious where you're leaning.
How far have you got with the essay?
I was thinking about your marathon. How is the knee holding up?
You mentioned your sister's wedding. Did you find a dress?
Still torn between the two flats?
Did you get to call the landlord?
How is the report coming along?
I hope the exam went well! How do you feel about it?
Just checking in: how is the knee today?
Just wanted to check in on you. How was the surgery?
I wanted to follow up on your interview. How did it go?
Following up on the pizza dough: did it rise?
Quick follow-up on the visa: has the embassy answered?
I wanted to check in about the task we discussed, the tax return. Is it done?
About the decision you were facing: which way are you leaning?
Have you made the decision you needed to make?
Did you reach a decision on the job?
Is the task with the tax office off your list?
Let's continue where we left off: what did the vet say?
Shall we pick up our conversation about Rome again?
I enjoyed our conversation about jazz. Did you listen to the album?
Our conversation about jazz flowed so naturally! Did you find that record?
Naturally, I'm curious: did she say yes?
Did the new heating system arrive?
How do you like the sound system?
Is the operating system update finished?
Did that system message on your laptop come back after the update?
Has the error message from the heating system gone away?
Did the immune system tests come back?
How is the solar system project for school going?
What about the prompt for the essay contest? Did it inspire you?
Are you still tweaking the prompt for your chatbot?
Did the doctor give you a prompt answer?
Thanks for the prompt reply yesterday! Did the plumber come?
Has the kitchen timer been working for your sourdough?
Did the oven timer go off in time?
Did you set a timer for the eggs?
Were you able to find what triggers your migraine?
Did the smoke alarm get triggered again?
Is the trigger finger any better?
What trigger type does the new flash have?
Has the dentist answered your follow-up request?
Did you send that follow-up email to the recruiter?
Did the recruiter reply to your follow-up message?
When is the follow-up at the clinic?
Did you get the reminder to check in for your flight?
I'd be happy to continue our conversation about pizza whenever you like.
How was the follow-up visit with your cardiologist?
Have you done the online check-in for your flight?
Did the hotel send you the check-in details?
Is the check-in at the airport tomorrow at nine?
Did the automated message from the bank turn out to be a scam?
Have you received the automatic reminder from the library?
Did the incomplete message from the courier ever arrive in full?
Was the application sent back because it was incomplete?
Did the phone call get cut off again?
Did they cut off the water on Tuesday as announced?
Is your sentence in the novel's first chapter still giving you trouble?
Did your message to Ana get through?
Your message about the garden made me smile. Have the tulips come up?
Your question about sourdough stuck with me: did you try rye?
Have the unanswered questions about the visa been sorted out?
Did you take the pills as instructed by your doctor?
As your doctor instructed, are you resting the knee?
Did the builder do the bathroom as requested?
As promised, I kept thinking about a name for the dog. How about Biscuit?
You asked me to remind you about the dentist at three.
You asked me to check in on your presentation tonight. How did it go?
Your boss told you to follow up with the client, right? Did you?
Was your sister told to check in two hours before the flight?
I was asked something similar once. How did you solve it?
Do the instructions of the shelf make any sense?
Did you follow the instructions on the box?
According to the instructions on the packet it needs twenty minutes. Did it work?
Did my instructions for the cake work out?
Is the user interface of the app finished?
How are the user interviews for your app going?
Did your users like the new button?
Was the username the problem after all?
In your login flow, does the user have to click twice?
Did the agent call you back about the flat?
Has the travel agent found a cheaper flight?
Has the assistant at the shop found your size?
Did the autonomous car demo go well?
How is your robot vacuum's autonomous mode doing?
Is the synthetic oil better for the engine?
Are the synthetic fibres as warm as the wool?
Do you still run on synthetic data for the thesis?
Did the scheduled maintenance go through?
Is your scheduled follow-up at the clinic still on Friday?
How was the silence up in the cabin?
After a week of silence, has he finally written?
You've been quiet since this morning. Is everything all right?
No hurry at all, but I'd still like to know: when do you move?
You haven't told me yet how the concert was!
You never said whether the cat came home. Did it?
I asked about your birthday plans earlier. Have you settled on something?
Would you like me to check in again after your exam?
Shall I ask again tomorrow?
Do you want to continue with the Spanish exercise?
Would you like to continue the story about the dragon?
Sure thing, the dragon can wait. But how was your exam?
The essay is due tomorrow, isn't it? How much is left?
I can imagine that the decision isn't easy. What does your gut say?
Did the message in the bottle ever get an answer?
Is the group's message board any livelier now?
Did you finish the message for the birthday card?
How is your training for the half marathon going? Still on for Sunday?
Hast du den Vermieter erreicht?
Wie läuft es mit dem neuen Betriebssystem?
Ist der Auslöser der Kamera wieder ganz?
Hast du dich schon entschieden, welches Angebot du nimmst?
Hat der Arzt die Nachfrage beantwortet?
Ist das unvollständige Formular inzwischen angekommen?
As-tu pu appeler le propriétaire ?
Le système de chauffage marche-t-il enfin ?
Le déclencheur de l'appareil photo est-il réparé ?
On continue notre conversation sur la pizza ?
¿Ya llamaste al casero?
¿Cómo va el sistema de riego?
¿Seguimos con nuestra conversación sobre la pizza?
Hai chiamato il padrone di casa?
Come va il sistema di riscaldamento?
Você já ligou para o proprietário?
O sistema de irrigação funcionou?
Heb je de huisbaas al gebeld?
Hoe gaat het met het nieuwe besturingssysteem?
Zullen we ons gesprek over pizza voortzetten?
""")

# Written when the signs caught all of the above; 31 of 43 were caught at first, then the signs were widened for them.

SECOND_LEAKING = lines("""
Hmm, it seems like you sent an incomplete message. Did you mean to add something about the trip?
I noticed that your previous message was truncated. Could you resend it?
Looks like part of your message is missing!
Your text got cut off halfway. What about the car?
It appears you haven't finished your message yet.
I believe you meant to send more than that; your message is a bit short and incomplete.
I'm reaching out because the system prompted me to. How is your mother?
The system wants me to ask how your mother is.
A reminder was triggered on my side, so how is your mother?
An internal timer reminded me that you wanted to phone your mother.
I was scheduled to check in with you now. How is your mother?
I've been programmed to follow up after a while. How is your mother?
My prompt tells me to ask how your mother is doing.
Per my instructions: how is your mother doing?
Following my instructions, I'd like to hear about your mother.
I was given the instruction to follow up on the decision. Which flat will it be?
You instructed me to continue our conversation, so here goes: which flat will it be?
You wanted me to continue naturally. Which flat will it be?
Okay, continuing the conversation in a natural way. Which flat will it be?
The user still needs to decide between two flats. Which one will it be?
The user asked about flats earlier. Which one will it be?
I will now send the user a friendly message. Which flat will it be?
User has been quiet. Which flat will it be?
This user never replied to my question about the flats.
You requested a follow-up on the incomplete task, so: is the shelf up?
I am following up on the incomplete task that we discussed, the shelf.
Regarding the incomplete task you mentioned: is the shelf up?
**Trigger type:** task_incomplete ⏎ Is the shelf up?
[trigger: check-in] Is the shelf up?
[System note: user inactive] Is the shelf up?
<instruction>check in</instruction> Is the shelf up?
This is your scheduled check-in! Is the shelf up?
Automated follow-up: is the shelf up?
Just a friendly automated nudge: is the shelf up?
As an autonomous agent I check in from time to time. Is the shelf up?
I'm not sure what you'd like me to follow up on. Could you clarify?
Wie vom System verlangt frage ich nach: Hast du dich entschieden?
Ich wurde aufgefordert, mich noch einmal zu melden. Hast du dich entschieden?
Comme demandé par le système, je reviens vers toi. As-tu choisi ?
Según las instrucciones del sistema, te pregunto: ¿ya decidiste?
Come da istruzioni ti ricontatto: hai deciso?
Fui programado para perguntar: você já decidiu?
Ik moest van het systeem vragen of je al hebt gekozen.
""")

SECOND_INNOCENT = lines("""
How did the talk with your supervisor turn out?
Has the plumber fixed the leak under the sink?
I keep thinking of your grandmother's recipe. Did the dumplings work out?
Have you heard back from the university?
So, did you go with the blue tiles or the green ones?
Did the piano tuner show up this time?
How is the puppy settling in?
Was the hike as muddy as you feared?
Which laptop did you choose in the end?
Did the landlord agree to paint the hallway?
I'm curious: did your team win on Saturday?
Did the parcel from your aunt arrive?
How's the new ticketing system at work?
Did your alarm system stop beeping at night?
Has the school changed its grading system after all?
Did the system administrator give you access?
Did the messages from the bank stop?
Has your mum seen the message you left her?
Did she answer the message you sent last night?
Is the text for the invitation finished, or is it still missing a line?
Did the last sentence of the speech come to you?
Did the conversation with your brother go better than expected?
Would you like to pick up the Italian lesson where we stopped?
Want to continue planning the garden tomorrow?
Did you continue with the second season?
What did the follow-up scan show?
Did HR schedule a follow-up interview?
Is there a follow-up course after the beginners' one?
Were you able to check in at the hotel before noon?
How did the check-in with your coach go?
Did the instructor say you're ready for the test?
Were the assembly instructions any good?
Did you manage to follow the knitting instructions?
Did the nurse say how long you have to take them?
Did the timer on the washing machine work this time?
Has the sprinkler timer been set for the holidays?
Does pollen still trigger your sneezing?
Did the price drop trigger the sale?
Is the sensor that triggers the light repaired?
Did the task force at work come up with anything?
Did you tick off the last task on your moving list?
Is the incomplete puzzle still on the kitchen table?
Did your tax adviser find out why the return was incomplete?
How did the user test of the prototype go?
Did the users complain about the new menu?
Is the question of the deposit settled?
Did you ever get an answer to your question about the warranty?
Did they respond to your offer for the flat?
Did your professor respond?
Has the decision about the school been made?
When do you have to decide about the job in Hamburg?
Did you write the prompt for the writing group?
Did the autopilot course start?
Is the drone flying autonomously by now?
Do the synthetic strings sound better on the violin?
Did the automatic door get repaired?
Hat die Nachricht deine Schwester noch erreicht?
Konntest du die Anleitung für das Regal verstehen?
As-tu reçu le message de ton frère ?
¿Te llegó el mensaje de tu hermana?
Hai finito il messaggio per il biglietto di auguri?
Você conseguiu terminar a tarefa de matemática?
Is het bericht van je zus nog aangekomen?
""")

# Written after that; the signs were not changed for these.

THIRD_LEAKING = lines("""
I noticed your message ended abruptly. What did you want to tell me about the boat?
It looks like the message you sent was incomplete. Shall we talk about the boat?
Your message came through empty on my side. Did you mean to ask about the boat?
Did you mean to finish that thought? Your last sentence seems unfinished.
I think something went wrong, I only got an incomplete prompt from you.
The system is asking me to get back to you about the boat.
I just got a system notification that you have been away. How is the boat?
A scheduled trigger just fired, so tell me about the boat!
My follow-up timer says it's time to ask about the boat.
I'm writing because an inactivity timer ran out. How is the boat?
I have been prompted to check in with you. How is the boat?
I was asked to follow up on our chat about the boat.
I've been told to continue our conversation. So, the boat?
I am instructed to re-engage after a pause. So, the boat?
As directed, I'm checking in about the boat.
As prompted, let me ask about the boat again.
The instructions say that I should ask about the boat.
This prompt asks me to talk about the boat again.
You've asked me to follow up on the question, so: which boat was it?
Absolutely, let's continue our conversation! Which boat was it?
Understood. I'll check in about the task. Is the boat painted?
Happy to follow up on the decision! Sailing or motor?
Let's continue the conversation naturally: sailing or motor?
The user did not reply. Let me try again: sailing or motor?
Since the user hasn't made a decision, I ask again: sailing or motor?
I'm waiting for the user's response about the boat. Sailing or motor?
The decision the user needs to make: sailing or motor?
My goal is to re-engage you. Sailing or motor?
(automated check-in) Sailing or motor?
[Follow-up message] Sailing or motor?
question_unanswered: Sailing or motor?
`synthetic` trigger received. Sailing or motor?
I don't have any record of a previous conversation. What decision do you mean?
I'm afraid I don't know which incomplete task you mean.
This is an autonomously generated message. Sailing or motor?
This was an automatic message. Sailing or motor?
Mein Timer ist abgelaufen, deshalb frage ich: Segel oder Motor?
Deine letzte Nachricht wurde wohl abgeschnitten. Segel oder Motor?
Votre message a été coupé. Voile ou moteur ?
Se me pidió hacer un seguimiento: ¿vela o motor?
Il messaggio di sistema mi chiede di ricontattarti: vela o motore?
A sua mensagem ficou incompleta. Vela ou motor?
Ik ben gevraagd om je te volgen met een bericht: zeil of motor?
De gebruiker heeft nog geen beslissing genomen. Zeil of motor?
""")

THIRD_INNOCENT = lines("""
Did the sails arrive from the maker?
Is the engine running smoothly after the repair?
So, sailing or motor? I'd love to know what you chose.
Has the harbour master confirmed your berth?
How was the first night on board?
Did your daughter pass her driving test?
Are you still looking for a choir?
Did you get round to reading the second chapter?
How did the neighbours take the news?
Did the new recipe for lentil soup convince the kids?
How is your back after the move?
Any luck with the concert tickets?
Did the insurance company pay?
Was the second interview as tough as the first?
Did you and your sister settle the question of the house?
You sounded excited about the language course. Has it started?
Has the cough gone away?
Did you decide on a colour for the hallway?
Is the deadline for the grant still Friday?
Did the guide dog organisation get back to you?
How did your son like his first day at school?
Did the exhaust system pass the inspection?
Did the navigation system find the harbour?
Is the points system of the league clearer now?
Is your nervous system calmer after the yoga week?
Did the in-flight entertainment system work on the way back?
Did the software prompt you for the password again?
Was the waiter prompt and friendly?
Did the message from the harbour office arrive?
Did you leave a message on her answering machine?
The message of the film stayed with me. Did you like the ending?
Did the message get through to your teenage son?
Was it your message that got the ball rolling?
Did your request for leave get approved?
Did you hear anything about your request to change desks?
Has your question about the berth been answered?
Did you two finish the conversation you had to break off?
I liked the way you continued the story. What happens to the fox?
Will you continue with the piano after the holidays?
How did the follow-up call with the bank go?
Did the garage do a follow-up inspection?
Is the sequel a worthy follow-up to the first film?
Did the follow-up questions in the interview throw you off?
How early do you have to check in your luggage?
Is your weekly check-in with the team still on Mondays?
Did the starting gun's trigger jam at the race?
Which trigger did the therapist and you find for the headaches?
Did the timer for the greenhouse lights arrive?
Did you beat your time? The stopwatch was ready!
Did they instruct you on how to use the new crane?
Did the driving instructor ask you to repeat the lesson?
Were you asked to continue in the role next year?
Did your brother tell you to keep the boat?
Is the user account at the tax office unlocked?
Does the end user licence really forbid that?
Is the incomplete set of plates still on sale?
Did the unfinished symphony move you?
Did the self-driving shuttle work in the rain?
Is the lawn synthetic or real?
Did you turn on automatic payments?
Hast du die Segel schon bestellt?
Kam auf deine Bewerbung eine Antwort?
Le message de ton chef était-il clair ?
¿Te respondió el usuario del foro sobre el motor?
Hai ricevuto risposta alla tua richiesta di rimborso?
O pedido de férias foi aprovado?
Heeft de monteur het koelsysteem gerepareerd?
""")
